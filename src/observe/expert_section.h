// The run page's section on experts.
#pragma once

#include <string>
#include <vector>

#include "observe/expert_log.h"

namespace strata::observe {

// Heat maps of each expert's share of tokens in the newest sample and of each layer's MaxVio over the steps,
// with the busiest expert and the number of experts without tokens. Empty without samples. Samples: oldest
// first.
std::string expert_section(const std::vector<ExpertSample>& samples);

}  // namespace strata::observe
