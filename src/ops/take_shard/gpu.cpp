#include <numeric>

#include "device/gpu/row_parts.h"
#include "graph/reshard.h"

namespace strata::device {

template <>
BoundKernel bind(Gpu, const Bind<graph::TakeShard>& node) {
  const graph::Value& x = *node.in.x;
  const graph::ReshardAttrs& attrs = node.attrs;
  const int dim = attrs.to.dim;
  int64_t outer = 1, inner_bytes = size_of(x.dtype);
  for (int i = 0; i < dim; ++i) outer *= x.shape[i];
  for (int i = dim + 1; i < x.shape.rank(); ++i) inner_bytes *= x.shape[i];
  std::vector<int64_t> parts = x.parts(dim);
  if (attrs.sequence > 0) {
    // See graph::Cut: a chunk of each half of every sequence.
    outer = x.shape[0] / attrs.sequence;
    parts = {attrs.sequence / 2, attrs.sequence / 2};
  }
  const int64_t unit = unit_of_copies({inner_bytes}), inner = inner_bytes / unit;
  const int64_t whole = std::accumulate(parts.begin(), parts.end(), int64_t{0});
  std::vector<gpu::TakeShareArgs> calls;
  int64_t first = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    gpu::TakeShareArgs call{};
    call.rows = outer;
    call.share = parts[i] / attrs.ranks * inner;
    call.first = first * inner;
    call.stride = whole * inner;
    call.out_first = first / attrs.ranks * inner;
    call.out_stride = whole / attrs.ranks * inner;
    call.ranks = static_cast<int32_t>(attrs.ranks);
    call.axis = static_cast<int32_t>(attrs.axis);
    call.mirrored = attrs.sequence > 0 && i % 2 == 1 ? 1 : 0;
    calls.push_back(call);
    first += parts[i];
  }
  return node.kernel([calls, unit](const Operands<graph::TakeShard>& at) {
    for (gpu::TakeShareArgs call : calls) {
      call.out = at.out.moved;
      call.x = at.in.x;
      call.rank = at.in.rank;
      start(at.launch, gpu::take_share(unit, call.rows * call.share), call);
    }
  });
}

}  // namespace strata::device
