#include "ops/temper/temper.h"

#include "device/gpu/gpu.h"
#include "kernels/gpu/launch_experts.h"

namespace strata::device {

template <>
BoundKernel bind(Gpu, const Bind<ops::Temper>& node) {
  const graph::Value& qkv = *node.in.qkv;
  const gpu::TemperArgs sizes{.y = nullptr,
                              .x = nullptr,
                              .positions = nullptr,
                              .rows = qkv.shape[0],
                              .width = qkv.shape[1],
                              .q_width = qkv.segments[0],
                              .floor = node.attrs.floor,
                              .scale = static_cast<float>(node.attrs.scale)};
  return node.kernel([sizes, kernel = gpu::temper(qkv.dtype, qkv.shape[0])](const Operands<ops::Temper>& at) {
    gpu::TemperArgs args = sizes;
    args.y = at.out.y;
    args.x = at.in.qkv;
    args.positions = at.in.positions;
    start(at.launch, kernel, args);
  });
}

template <>
BoundKernel bind(Gpu, const Bind<ops::ChunkBegins>& node) {
  const int64_t n = node.in.positions->shape[0];
  return node.kernel([n, size = static_cast<int32_t>(node.attrs.size),
                      kernel = gpu::chunk_begins(n)](const Operands<ops::ChunkBegins>& at) {
    start(at.launch, kernel,
          gpu::ChunkBeginsArgs{.begins = at.out.begins,
                               .positions = at.in.positions,
                               .document_begins = at.in.document_begins,
                               .n = n,
                               .size = size});
  });
}

}  // namespace strata::device
