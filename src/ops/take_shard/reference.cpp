#include <numeric>

#include "graph/reshard.h"
#include "graph/shard.h"
#include "ops/reference.h"

namespace strata::reference {

// The ranges of the whole that the rank holds.
template <>
void compute(const Arrays<graph::TakeShard>& at) {
  const auto& attrs = at.attrs;
  const Array &x = at.in.x, &y = at.out.moved;
  const int dim = attrs.to.dim;
  // Indices along the dimension; -1: padding.
  std::vector<int64_t> taken(static_cast<size_t>(y.shape[dim]), -1);
  if (attrs.cuts.empty()) {
    std::iota(taken.begin(), taken.end(), 0);
  } else {
    const int64_t index = place_in(at.in.rank, attrs.axis, attrs.ranks);
    for (const graph::HeldSpan& span : graph::held_of(attrs.cuts.front().to, index))
      for (int64_t i = 0; i < span.whole.size(); ++i)
        taken[static_cast<size_t>(span.at + i)] = span.whole.begin + i;
  }
  int64_t inner = 1;
  for (int i = dim + 1; i < x.shape.rank(); ++i) inner *= x.shape[i];
  for (int64_t i = 0; i < y.shape.elements(); ++i) {
    const int64_t row = i / inner / y.shape[dim], along = i / inner % y.shape[dim];
    const int64_t from = taken[static_cast<size_t>(along)];
    y.put(i, from < 0 ? 0 : x.at((row * x.shape[dim] + from) * inner + i % inner));
  }
}

}  // namespace strata::reference
