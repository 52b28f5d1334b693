#include "observe/expert_load.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace strata::observe {

ExpertSpread spread_of(std::span<const int64_t> tokens) {
  ExpertSpread spread;
  spread.dead = std::count(tokens.begin(), tokens.end(), 0);
  const auto all = static_cast<double>(std::accumulate(tokens.begin(), tokens.end(), int64_t{0}));
  if (all == 0) return spread;
  const auto experts = static_cast<double>(tokens.size());
  const auto most = static_cast<double>(*std::max_element(tokens.begin(), tokens.end()));
  spread.max_violation = most * experts / all - 1;
  double entropy = 0;
  for (const int64_t count : tokens) {
    const double share = static_cast<double>(count) / all;
    if (count > 0) entropy -= share * std::log(share);
  }
  spread.in_use = std::exp(entropy);
  spread.entropy = tokens.size() > 1 ? entropy / std::log(experts) : 1;
  return spread;
}

}  // namespace strata::observe
