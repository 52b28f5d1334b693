#include "device/cpu/cpu.h"
#include "graph/reshard.h"
#include "graph/shard.h"
#include "kernels/cpu/shard.h"

namespace strata::device {
namespace {

// By rank of the axis; before localize() there is one, which has the whole.
std::vector<std::vector<cpu::ShardRange>> ranges_by_rank(const graph::ReshardAttrs& attrs, int64_t whole) {
  if (attrs.cuts.empty()) return {{{0, 0, whole}}};
  const graph::Cut& cut = attrs.cuts.front().to;
  std::vector<std::vector<cpu::ShardRange>> ranges(static_cast<size_t>(cut.ranks));
  for (int64_t rank = 0; rank < cut.ranks; ++rank) {
    for (const graph::HeldSpan& span : graph::held_of(cut, rank))
      ranges[static_cast<size_t>(rank)].push_back({span.whole.begin, span.at, span.whole.size()});
  }
  return ranges;
}

}  // namespace

template <>
BoundKernel bind(Cpu, const Bind<graph::TakeShard>& node) {
  const graph::Value& x = *node.in.x;
  const graph::ReshardAttrs& attrs = node.attrs;
  const int dim = attrs.to.dim;
  cpu::ShardShape shape{
      .whole = x.shape[dim], .held = node.out.moved->shape[dim], .inner_bytes = size_of(x.dtype)};
  for (int i = 0; i < dim; ++i) shape.outer *= x.shape[i];
  for (int i = dim + 1; i < x.shape.rank(); ++i) shape.inner_bytes *= x.shape[i];
  return node.kernel([shape, axis = attrs.axis,
                      ranges = ranges_by_rank(attrs, x.shape[dim])](const Operands<graph::TakeShard>& at) {
    const int64_t rank = graph::place_in(at.in.rank, axis, std::ssize(ranges));
    cpu::take_shard(at.out.moved, at.in.x, shape, ranges[static_cast<size_t>(rank)]);
  });
}

}  // namespace strata::device
