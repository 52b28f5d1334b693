// The part of the run page that is about experts.
#pragma once

#include <string>
#include <vector>

#include "observe/expert_log.h"

namespace strata::observe {

// Heat maps of the newest share of each expert of each layer and of each layer's MaxVio over the steps, and
// which expert is the busiest and how many have no token; empty where there are no samples. Oldest first.
std::string expert_section(const std::vector<ExpertSample>& samples);

}  // namespace strata::observe
