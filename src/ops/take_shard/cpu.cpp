#include <cstring>

#include "device/cpu/cpu.h"
#include "graph/reshard.h"
#include "graph/shard.h"
#include "kernels/cpu/shard.h"

namespace strata::device {

namespace {

// Shards that need not be equal (graph::Padding): what each rank holds, with zeros where it holds nothing.
BoundKernel bind_padded(const Bind<graph::TakeShard>& node, const graph::Cut& cut) {
  const graph::Value &x = *node.in.x, &y = *node.out.moved;
  const int dim = node.attrs.to.dim;
  struct Sizes {
    int64_t outer = 1, of_x, of_y, inner_bytes;      // of_x and of_y: along the dimension
    std::vector<std::vector<graph::HeldSpan>> held;  // by rank
  } sizes{.of_x = x.shape[dim], .of_y = y.shape[dim], .inner_bytes = size_of(x.dtype), .held = {}};
  for (int i = 0; i < dim; ++i) sizes.outer *= x.shape[i];
  for (int i = dim + 1; i < x.shape.rank(); ++i) sizes.inner_bytes *= x.shape[i];
  for (int64_t rank = 0; rank < cut.ranks; ++rank) sizes.held.push_back(graph::held_of(cut, rank));
  return node.kernel([sizes = std::move(sizes), axis = node.attrs.axis, ranks = cut.ranks,
                      bytes = y.bytes()](const Operands<graph::TakeShard>& at) {
    std::memset(at.out.moved, 0, static_cast<size_t>(bytes));
    for (const graph::HeldSpan& span :
         sizes.held[static_cast<size_t>(graph::place_in(at.in.rank, axis, ranks))]) {
      for (int64_t row = 0; row < sizes.outer; ++row)
        std::memcpy(at.out.moved + (row * sizes.of_y + span.at) * sizes.inner_bytes,
                    at.in.x + (row * sizes.of_x + span.whole.begin) * sizes.inner_bytes,
                    static_cast<size_t>(span.whole.size() * sizes.inner_bytes));
    }
  });
}

}  // namespace

template <>
BoundKernel bind(Cpu, const Bind<graph::TakeShard>& node) {
  const graph::Value& x = *node.in.x;
  const graph::ReshardAttrs& attrs = node.attrs;
  const int dim = attrs.to.dim;
  if (!attrs.cuts.empty() && attrs.cuts.front().to.alignment > 0)
    return bind_padded(node, attrs.cuts.front().to);
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
