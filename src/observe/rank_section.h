// The run page's section on ranks.
#pragma once

#include <string>
#include <vector>

#include "observe/metrics.h"
#include "observe/rank_log.h"

namespace strata::observe {

// Heat maps of each rank's step time, data waits and memory over the steps, with the slowest rank. Empty
// without samples. All samples have the same number of ranks; oldest first.
std::string rank_section(const std::vector<RankSample>& samples, const MetricsTable& metrics);

}  // namespace strata::observe
