#include "ops/norm/norm.h"

#include "device/gpu/gpu.h"
#include "kernels/gpu/launch.h"

namespace strata::device {
namespace {

using gpu::NormGradients;
using gpu::NormKind;

float offset_of(const ops::RmsNormAttrs& attrs) {
  return static_cast<float>(attrs.weight_offset);
}
float offset_of(const ops::LayerNormAttrs&) {
  return 0;
}

template <typename Op>
BoundKernel bind_forward(const Bind<Op>& node, NormKind kind) {
  const graph::Value& x = *node.in.x;
  return node.kernel([kernel = gpu::norm_forward(kind, x.dtype, x.shape[0], x.shape[1]),
                      dim = static_cast<int32_t>(x.shape[1]), eps = static_cast<float>(node.attrs.eps),
                      offset = offset_of(node.attrs)](const Operands<Op>& at) {
    gpu::NormArgs args{.y = at.out.y,
                       .h = at.out.h,
                       .mean = nullptr,
                       .rstd = at.out.rstd,
                       .x = at.in.x,
                       .residual = at.in.residual,
                       .weight = at.in.weight,
                       .bias = nullptr,
                       .dim = dim,
                       .eps = eps,
                       .weight_offset = offset};
    if constexpr (requires { at.out.mean; }) args.mean = at.out.mean;
    if constexpr (requires { at.in.bias; }) args.bias = at.in.bias;
    start(at.launch, kernel, args);
  });
}

template <typename Op>
gpu::NormGradArgs grad_args(const Operands<Op>& at, int64_t rows, int64_t dim, float offset) {
  gpu::NormGradArgs args{.dx = nullptr,
                         .parts = nullptr,
                         .dy = at.in.dy,
                         .h = at.in.h,
                         .dh = nullptr,
                         .mean = nullptr,
                         .rstd = at.in.rstd,
                         .weight = nullptr,
                         .rows = static_cast<int32_t>(rows),
                         .dim = static_cast<int32_t>(dim),
                         .weight_offset = offset};
  if constexpr (requires { at.in.mean; }) args.mean = at.in.mean;
  return args;
}

template <typename Op>
BoundKernel bind_grad_input(const Bind<Op>& node, NormKind kind) {
  const graph::Value& h = *node.in.h;
  return node.kernel([plan = gpu::norm_backward(kind, NormGradients::kInput, h.dtype, h.shape[0], h.shape[1]),
                      rows = h.shape[0], dim = h.shape[1],
                      offset = offset_of(node.attrs)](const Operands<Op>& at) {
    gpu::NormGradArgs args = grad_args(at, rows, dim, offset);
    args.dx = at.out.dx;
    args.dh = at.in.dh;
    args.weight = at.in.weight;
    start(at.launch, plan.gradients, args);
  });
}

// The parts of a block: dw, for layer norm also db.
template <typename Op>
BoundKernel bind_grad_weight(const Bind<Op>& node, NormKind kind, bool adds) {
  const graph::Value& h = *node.in.h;
  const gpu::NormGradPlan plan =
      gpu::norm_backward(kind, NormGradients::kWeight, h.dtype, h.shape[0], h.shape[1]);
  const int64_t dim = h.shape[1], stride = kind == NormKind::kLayer ? 2 * dim : dim;
  return node.kernel(
      [plan, rows = h.shape[0], dim, stride, adds](const Operands<Op>& at) {
        gpu::NormGradArgs args = grad_args(at, rows, dim, 0);
        args.parts = reinterpret_cast<float*>(at.scratch);
        start(at.launch, plan.gradients, args);
        gpu::ColumnPartsArgs sum{.parts = args.parts,
                                 .out = at.out.dw,
                                 .count = plan.blocks,
                                 .columns = dim,
                                 .stride = stride,
                                 .accumulate = adds ? 1 : 0};
        start(at.launch, plan.sum, sum);
        if constexpr (requires { at.out.db; }) {
          sum.parts += dim;
          sum.out = at.out.db;
          start(at.launch, plan.sum, sum);
        }
      },
      plan.blocks * stride * size_of(DType::kF32));
}

}  // namespace

template <>
BoundKernel bind(Gpu, const Bind<ops::RmsNorm>& node) {
  return bind_forward(node, NormKind::kRms);
}
template <>
BoundKernel bind(Gpu, const Bind<ops::RmsNormGradInput>& node) {
  return bind_grad_input(node, NormKind::kRms);
}
template <>
BoundKernel bind(Gpu, const Bind<ops::RmsNormGradWeight>& node) {
  return bind_grad_weight(node, NormKind::kRms, node.adds.dw);
}
template <>
BoundKernel bind(Gpu, const Bind<ops::LayerNorm>& node) {
  return bind_forward(node, NormKind::kLayer);
}
template <>
BoundKernel bind(Gpu, const Bind<ops::LayerNormGradInput>& node) {
  return bind_grad_input(node, NormKind::kLayer);
}
template <>
BoundKernel bind(Gpu, const Bind<ops::LayerNormGradWeight>& node) {
  return bind_grad_weight(node, NormKind::kLayer, node.adds.dw);
}

}  // namespace strata::device
