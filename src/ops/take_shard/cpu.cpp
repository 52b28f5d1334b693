#include "device/cpu/cpu.h"
#include "graph/reshard.h"
#include "kernels/cpu/shard.h"

namespace strata::device {

template <>
BoundKernel bind(Cpu, const Bind<graph::TakeShard>& node) {
  const graph::Value& x = *node.in.x;
  const graph::ReshardAttrs& attrs = node.attrs;
  const int dim = attrs.to.dim;
  cpu::ShardShape shape{.parts = x.parts(dim), .inner_bytes = size_of(x.dtype), .ranks = attrs.ranks};
  for (int i = 0; i < dim; ++i) shape.outer *= x.shape[i];
  for (int i = dim + 1; i < x.shape.rank(); ++i) shape.inner_bytes *= x.shape[i];
  if (attrs.sequence > 0) {
    // See graph::Cut: a chunk of each half of every sequence.
    shape.outer = x.shape[0] / attrs.sequence;
    shape.parts = {attrs.sequence / 2, attrs.sequence / 2};
    shape.mirrored = true;
  }
  return node.kernel([shape = std::move(shape), axis = attrs.axis](const Operands<graph::TakeShard>& at) {
    cpu::take_shard(at.out.moved, at.in.x, shape, graph::place_in(at.in.rank, axis, shape.ranks));
  });
}

}  // namespace strata::device
