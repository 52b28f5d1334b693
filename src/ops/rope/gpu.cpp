#include "device/gpu/gpu.h"
#include "ops/rope/rope.h"

namespace strata::device {

template <>
BoundKernel bind(Gpu, const Bind<ops::RopeTable>& node) {
  const ops::RopeTableAttrs& attrs = node.attrs;
  const auto bytes = static_cast<int64_t>(attrs.frequencies.size() * sizeof(double));
  return node.kernel(
      [attrs, bytes](const Operands<ops::RopeTable>& at) {
        gpu_queue(at.launch).upload(at.scratch, attrs.frequencies.data(), bytes);
        const auto pairs = static_cast<int64_t>(attrs.frequencies.size());
        start(at.launch, gpu::rope_table(attrs.positions, pairs),
              gpu::RopeTableArgs{.table = at.out.table,
                                 .frequencies = reinterpret_cast<const double*>(at.scratch),
                                 .positions = attrs.positions,
                                 .pairs = pairs,
                                 .magnitude = attrs.magnitude});
      },
      bytes);
}

template <>
BoundKernel bind(Gpu, const Bind<ops::Rope>& node) {
  const graph::Value& x = *node.in.x;
  const ops::RopeAttrs& attrs = node.attrs;
  const int64_t width = x.shape[1];
  const int64_t turned = x.segments.empty() ? width : x.segments[0] + x.segments[1];
  const gpu::RopeArgs args{.out = nullptr,
                           .in = nullptr,
                           .table = nullptr,
                           .positions = nullptr,
                           .row_stride = width,
                           .rows = static_cast<int32_t>(x.shape[0]),
                           .heads = static_cast<int32_t>(turned / attrs.head_dim),
                           .head_dim = static_cast<int32_t>(attrs.head_dim),
                           .rotary_dim = static_cast<int32_t>(2 * node.in.table->shape[1]),
                           .first = static_cast<int32_t>(attrs.first),
                           .width = static_cast<int32_t>(width),
                           .adjacent = attrs.adjacent ? 1 : 0,
                           .inverse = attrs.inverse ? 1 : 0};
  return node.kernel([args, dtype = x.dtype](const Operands<ops::Rope>& at) {
    gpu::RopeArgs now = args;
    now.out = at.out.qkv;
    now.in = at.in.x;
    now.table = at.in.table;
    now.positions = at.in.positions;
    start(at.launch, gpu::rope(dtype, now), now);
  });
}

}  // namespace strata::device
