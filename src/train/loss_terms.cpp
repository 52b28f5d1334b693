#include "train/loss_terms.h"

#include <cmath>

#include "comm/exchange.h"

namespace strata::training {

std::vector<int64_t> count_terms(std::span<const int32_t> targets, int64_t length, int64_t further) {
  std::vector<int64_t> terms(static_cast<size_t>(1 + further));
  int64_t run = 0;  // consecutive targets up to this one
  for (size_t i = 0; i < targets.size(); ++i) {
    if (static_cast<int64_t>(i) % length == 0) run = 0;
    run = targets[i] >= 0 ? run + 1 : 0;
    for (int64_t k = 0; k <= further && k < run; ++k) ++terms[static_cast<size_t>(k)];
  }
  return terms;
}

std::vector<int64_t> terms_of_all(const std::vector<int64_t>& mine, const program::Ranks& ranks) {
  std::vector<double> sums(mine.begin(), mine.end());
  comm::sum_over(ranks.all(), sums);
  // Ranks that share a shard of the batch have the same counts.
  const double copies = static_cast<double>(ranks.all().size()) / static_cast<double>(ranks.batch_parts());
  std::vector<int64_t> terms;
  for (const double sum : sums) terms.push_back(static_cast<int64_t>(std::llround(sum / copies)));
  return terms;
}

}  // namespace strata::training
