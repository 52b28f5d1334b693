#include "device/gpu/row_parts.h"
#include "graph/reshard.h"
#include "graph/shard.h"

namespace strata::device {
namespace {

// How the entries along the dimension are cut: rows of `entries`, of which each rank has `held`.
struct Rows {
  int64_t count = 1, entries = 0, held = 0;
  std::vector<int64_t> parts, shares;  // entries of each part, and of each rank's shard of it
};

Rows rows_of(const graph::Value& x, const graph::ReshardAttrs& attrs) {
  const int dim = attrs.to.dim;
  Rows rows{.entries = x.shape[dim], .held = x.shape[dim], .parts = {x.shape[dim]}, .shares = {x.shape[dim]}};
  for (int i = 0; i < dim; ++i) rows.count *= x.shape[i];
  if (attrs.cuts.empty()) return rows;
  const graph::Cut& cut = attrs.cuts.front().to;
  if (cut.sequence > 0) {
    // A chunk of each half of every sequence.
    const int64_t half = cut.sequence / 2, chunk = half / cut.ranks;
    return {x.shape[dim] / cut.sequence, cut.sequence, 2 * chunk, {half, half}, {chunk, chunk}};
  }
  rows.held = graph::held_size(cut);
  if (cut.deals) {
    rows.shares = {rows.held};
  } else {
    rows.parts = cut.parts;
    rows.shares = graph::shares_of(cut);
  }
  return rows;
}

}  // namespace

template <>
BoundKernel bind(Gpu, const Bind<graph::TakeShard>& node) {
  const graph::Value& x = *node.in.x;
  const graph::ReshardAttrs& attrs = node.attrs;
  const Rows rows = rows_of(x, attrs);
  int64_t inner_bytes = size_of(x.dtype);
  for (int i = attrs.to.dim + 1; i < x.shape.rank(); ++i) inner_bytes *= x.shape[i];
  const int64_t unit = unit_of_copies({inner_bytes}), inner = inner_bytes / unit;
  std::vector<gpu::TakeShareArgs> calls;
  int64_t first = 0, out_first = 0;
  for (size_t i = 0; i < rows.parts.size(); ++i) {
    gpu::TakeShareArgs call{};
    call.rows = rows.count;
    call.share = rows.shares[i] * inner;
    call.size = rows.parts[i] * inner;
    call.first = first * inner;
    call.stride = rows.entries * inner;
    call.out_first = out_first * inner;
    call.out_stride = rows.held * inner;
    call.ranks = static_cast<int32_t>(attrs.ranks);
    call.axis = static_cast<int32_t>(attrs.axis);
    call.mirrored = attrs.sequence > 0 && i % 2 == 1 ? 1 : 0;
    calls.push_back(call);
    first += rows.parts[i];
    out_first += rows.shares[i];
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
