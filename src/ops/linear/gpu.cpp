#include "device/gpu/gpu.h"
#include "ops/linear/linear.h"

namespace strata::device {

template <>
BoundKernel bind(Gpu, const Bind<ops::Linear>& node) {
  const graph::Value &x = *node.in.x, &weight = *node.in.weight;
  const int64_t m = x.shape[0], k = x.shape[1], n = weight.shape[0];
  const GpuGemm gemm({.layout = gpu::GemmLayout::kNT,
                      .dtype = x.dtype,
                      .out_dtype = node.out.y->dtype,
                      .m = m,
                      .n = n,
                      .k = k,
                      .a_stride = k,
                      .b_stride = k,
                      .c_stride = n},
                     node.device);
  return node.kernel(
      [gemm](const Operands<ops::Linear>& at) {
        gemm.run(at.launch, at.in.x, at.in.weight, at.out.y, false, at.scratch, at.in.bias);
      },
      gemm.scratch_bytes());
}

template <>
Encodings<ops::Linear> encodings(Gpu, const graph::View<ops::Linear>& node, const hardware::DeviceSpec&) {
  return bf16_copies<ops::Linear>(node, node.in.x->dtype, {"weight"});
}

template <>
BoundKernel bind(Gpu, const Bind<ops::LinearGradInput>& node) {
  const graph::Value &dy = *node.in.dy, &weight = *node.in.weight;
  const int64_t m = dy.shape[0], k = weight.shape[0], n = weight.shape[1];
  const GpuGemm gemm({.layout = gpu::GemmLayout::kNN,
                      .dtype = dy.dtype,
                      .out_dtype = node.out.dx->dtype,
                      .m = m,
                      .n = n,
                      .k = k,
                      .a_stride = k,
                      .b_stride = n,
                      .c_stride = n},
                     node.device);
  return node.kernel(
      [gemm](const Operands<ops::LinearGradInput>& at) {
        gemm.run(at.launch, at.in.dy, at.in.weight, at.out.dx, false, at.scratch);
      },
      gemm.scratch_bytes());
}

template <>
Encodings<ops::LinearGradInput> encodings(Gpu, const graph::View<ops::LinearGradInput>& node,
                                          const hardware::DeviceSpec&) {
  return bf16_copies<ops::LinearGradInput>(node, node.in.dy->dtype, {"weight"});
}

template <>
BoundKernel bind(Gpu, const Bind<ops::LinearGradWeight>& node) {
  const graph::Value &dy = *node.in.dy, &x = *node.in.x;
  const int64_t m = dy.shape[1], n = x.shape[1], k = dy.shape[0];
  const GpuGemm gemm({.layout = gpu::GemmLayout::kTN,
                      .dtype = dy.dtype,
                      .out_dtype = DType::kF32,
                      .m = m,
                      .n = n,
                      .k = k,
                      .a_stride = m,
                      .b_stride = n,
                      .c_stride = n},
                     node.device);
  return node.kernel(
      [gemm, adds = node.adds.dw](const Operands<ops::LinearGradWeight>& at) {
        gemm.run(at.launch, at.in.dy, at.in.x, at.out.dw, adds, at.scratch);
      },
      gemm.scratch_bytes());
}

template <>
BoundKernel bind(Gpu, const Bind<ops::ColumnSums>& node) {
  const graph::Value& dy = *node.in.dy;
  return node.kernel(
      [sums = GpuColumnSums(dy.dtype, dy.shape[0], dy.shape[1]),
       adds = node.adds.sums](const Operands<ops::ColumnSums>& at) {
        sums.run(at.launch, at.in.dy, at.out.sums, adds, at.scratch);
      },
      GpuColumnSums(dy.dtype, dy.shape[0], dy.shape[1]).scratch_bytes());
}

template <>
BoundKernel bind(Gpu, const Bind<ops::PackWeight>& node) {
  const int64_t n = node.in.weight->shape.elements();
  return node.kernel(
      [n, kernel = gpu::elementwise("cast_bf16_f32", DType::kBF16, n)](const Operands<ops::PackWeight>& at) {
        start(at.launch, kernel,
              gpu::ElementArgs{.out = at.out.packed, .a = at.in.weight, .b = nullptr, .n = n, .factor = 1});
      });
}

}  // namespace strata::device
