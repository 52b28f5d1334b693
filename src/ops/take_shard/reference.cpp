#include "ops/reference.h"
#include "graph/reshard.h"
#include "graph/shard.h"

namespace strata::reference {

// The shard's share of every part.
template <>
void compute(const Arrays<graph::TakeShard>& at) {
  const auto& attrs = at.attrs;
  const Array &x = at.in.x, &y = at.out.moved;
  const int dim = attrs.to.dim;
  const int64_t index = place_in(at.in.rank, attrs.axis, attrs.ranks);
  std::vector<int64_t> parts{x.shape[dim]};
  if (dim == x.shape.rank() - 1 && !x.segments.empty()) parts = x.segments;
  // From each sequence a chunk counted from its start, and one at the same distance from its end.
  const bool by_pieces = attrs.sequence > 0;
  if (by_pieces) parts.assign(static_cast<size_t>(2 * x.shape[0] / attrs.sequence), attrs.sequence / 2);
  std::vector<int64_t> taken;  // indices along the dimension
  int64_t begin = 0;
  for (size_t p = 0; p < parts.size(); ++p) {
    const int64_t share = parts[p] / attrs.ranks;
    const int64_t number = by_pieces && p % 2 == 1 ? attrs.ranks - 1 - index : index;
    for (int64_t i = 0; i < share; ++i) taken.push_back(begin + number * share + i);
    begin += parts[p];
  }
  const bool is_padded = !attrs.cuts.empty() && attrs.cuts.front().to.alignment > 0;
  if (is_padded) {
    taken.assign(static_cast<size_t>(y.shape[dim]), -1);
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
