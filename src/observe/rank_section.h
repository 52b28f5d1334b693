// The part of the run page that is about ranks.
#pragma once

#include <string>
#include <vector>

#include "observe/metrics.h"
#include "observe/rank_log.h"

namespace strata::observe {

// Heat maps of each rank's step time, waiting and memory over the steps, and which rank is the slowest; empty
// where there are no samples. Samples are of one number of ranks, oldest first.
std::string rank_section(const std::vector<RankSample>& samples, const MetricsTable& metrics);

}  // namespace strata::observe
