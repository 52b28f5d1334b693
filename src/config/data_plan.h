// How much of each source a run will read, known before it starts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/resolve.h"
#include "data/samples/sample_source.h"

namespace strata::config {

struct SourcePlan {
  std::string name;
  int64_t tokens = 0;  // it has
  double share = 0;    // of the run's samples
  double epochs = 0;   // how often it is read
};

// For a run of `samples` samples, from its first step on.
std::vector<SourcePlan> plan_sources(const RunData& data, const data::SampleSource& source, int64_t samples);

// "web 62.1 % of the tokens, 0.31 epochs; math …"; "1.25 epochs" of a single source.
std::string to_string(const std::vector<SourcePlan>& plan);

// One warning per source that is repeated beyond four epochs, up to which repeated tokens are nearly as
// valuable as new ones (Muennighoff et al., "Scaling Data-Constrained Language Models", 2023).
std::vector<std::string> repetition_warnings(const std::vector<SourcePlan>& plan);

}  // namespace strata::config
