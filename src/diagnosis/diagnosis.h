// The diagnosis of a run: its state, its findings and the share of its time that produced steps.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "diagnosis/findings.h"

namespace strata::diagnosis {

struct Finding : Found {
  std::string name;
};

struct Diagnosis {
  Path folder;
  RunState state = RunState::kFailed;
  int64_t step = 0;                  // last surviving one
  std::optional<int64_t> all_steps;  // planned
  std::vector<Finding> findings;     // in the order of finding_kinds()
  TimeAccount time;
};

// All kinds, the most urgent first.
std::vector<FindingKind> finding_kinds();

Diagnosis diagnose(const Evidence& evidence);

}  // namespace strata::diagnosis
