// The kinds of findings. Each is a function that looks at a case and reports a problem that it finds.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "diagnosis/case.h"

namespace strata::diagnosis {

struct Found {
  std::string sentence;  // the problem, since which step, and what helps
  nlohmann::ordered_json evidence = nlohmann::ordered_json::object();
  std::vector<std::string> settings;  // to try, as KEY=VALUE
};

struct FindingKind {
  std::string_view name;
  std::string_view meaning;  // a phrase, for docs/diagnosis.md
  std::optional<Found> (*find)(const Case&);
};

std::span<const FindingKind> state_findings();   // how the run ended and what recovery did
std::span<const FindingKind> loss_findings();    // losses and gradients over the run
std::span<const FindingKind> update_findings();  // learning rate, clipping, batch, optimizer
std::span<const FindingKind> model_findings();   // values within the model
std::span<const FindingKind> time_findings();    // lost time
std::span<const FindingKind> folder_findings();  // checkpoints, disk, data, evaluation

}  // namespace strata::diagnosis
