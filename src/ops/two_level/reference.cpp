#include <cmath>
#include <numeric>

#include "ops/reference.h"
#include "ops/router/scores.h"
#include "ops/two_level/two_level.h"

namespace strata::reference {
namespace {

constexpr auto kSoftmax = ops::RouteAttrs::Score::kSoftmax;

Numbers log_shares(const Numbers& x) {
  Numbers logs;
  for (const double share : scores_of(x, kSoftmax)) logs.push_back(std::log(share));
  return logs;
}

Numbers part_of(const Numbers& x, size_t first, size_t count) {
  const auto begin = x.begin() + static_cast<std::ptrdiff_t>(first);
  return {begin, begin + static_cast<std::ptrdiff_t>(count)};
}

}  // namespace

template <>
void compute(const Arrays<ops::TwoLevelLogits>& at) {
  const Array &groups = at.in.groups, &logits = at.in.logits;
  const auto experts = static_cast<size_t>(logits.shape[1]);
  const size_t size = experts / static_cast<size_t>(groups.shape[1]);
  for (int64_t token = 0; token < logits.shape[0]; ++token) {
    const Numbers of_groups = log_shares(groups.row(token)), row = logits.row(token);
    for (size_t e = 0; e < experts; ++e) {
      const double own = log_shares(part_of(row, e / size * size, size))[e % size];
      at.out.y.put(token * logits.shape[1] + static_cast<int64_t>(e), of_groups[e / size] + own);
    }
  }
}

template <>
void compute(const Arrays<ops::TwoLevelLogitsGrad>& at) {
  const Array &groups = at.in.groups, &logits = at.in.logits;
  const auto experts = static_cast<size_t>(logits.shape[1]), count = static_cast<size_t>(groups.shape[1]);
  const size_t size = experts / count;
  for (int64_t token = 0; token < logits.shape[0]; ++token) {
    const Numbers dy = at.in.dy.row(token), row = logits.row(token);
    const Numbers of_groups = scores_of(groups.row(token), kSoftmax);
    const double all = std::accumulate(dy.begin(), dy.end(), 0.0);
    for (size_t g = 0; g < count; ++g) {
      const Numbers d = part_of(dy, g * size, size), own = scores_of(part_of(row, g * size, size), kSoftmax);
      const double sum = std::accumulate(d.begin(), d.end(), 0.0);
      at.out.dgroups.put(token * groups.shape[1] + static_cast<int64_t>(g), sum - of_groups[g] * all);
      for (size_t e = 0; e < size; ++e)
        at.out.dlogits.put(token * logits.shape[1] + static_cast<int64_t>(g * size + e), d[e] - own[e] * sum);
    }
  }
}

}  // namespace strata::reference
