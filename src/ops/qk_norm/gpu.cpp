#include "ops/qk_norm/qk_norm.h"

#include "device/gpu/gpu.h"

namespace strata::device {
namespace {

// By the widths of the weights.
gpu::QkNormArgs args_of(const graph::Value& qkv, const ops::QkNormAttrs& attrs, int64_t q_width,
                        int64_t k_width) {
  gpu::QkNormArgs args{};
  args.rows = qkv.shape[0];
  args.width = static_cast<int32_t>(qkv.shape[1]);
  args.q_groups = static_cast<int32_t>(qkv.segments[0] / q_width);
  args.q_width = static_cast<int32_t>(q_width);
  args.k_groups = static_cast<int32_t>(qkv.segments[1] / k_width);
  args.k_width = static_cast<int32_t>(k_width);
  args.eps = static_cast<float>(attrs.eps);
  args.weight_offset = static_cast<float>(attrs.weight_offset);
  return args;
}

template <typename Op>
gpu::QkNormArgs args_of(const Bind<Op>& node) {
  if (node.in.means) not_yet(Op::def.name, "with means over ranks");
  return args_of(*node.in.qkv, node.attrs, node.in.q_weight->shape[0], node.in.k_weight->shape[0]);
}

}  // namespace

template <>
BoundKernel bind(Gpu, const Bind<ops::QkNorm>& node) {
  const gpu::QkNormArgs args = args_of(node);
  return node.kernel(
      [args, kernel = gpu::qk_norm_forward(node.in.qkv->dtype, args)](const Operands<ops::QkNorm>& at) {
        gpu::QkNormArgs now = args;
        now.out = at.out.y;
        now.rstd = at.out.rstd;
        now.x = at.in.qkv;
        now.q_weight = at.in.q_weight;
        now.k_weight = at.in.k_weight;
        start(at.launch, kernel, now);
      });
}

template <>
BoundKernel bind(Gpu, const Bind<ops::QkNormGradInput>& node) {
  const gpu::QkNormArgs args = args_of(node);
  return node.kernel([args, kernel = gpu::qk_norm_backward_input(node.in.qkv->dtype, args)](
                         const Operands<ops::QkNormGradInput>& at) {
    gpu::QkNormArgs now = args;
    now.out = at.out.dx;
    now.rstd = const_cast<float*>(at.in.rstd);  // only read
    now.x = at.in.qkv;
    now.dy = at.in.dy;
    now.q_weight = at.in.q_weight;
    now.k_weight = at.in.k_weight;
    start(at.launch, kernel, now);
  });
}

template <>
BoundKernel bind(Gpu, const Bind<ops::QkNormGradWeight>& node) {
  gpu::QkNormArgs args = args_of(*node.in.qkv, node.attrs, node.out.dq->shape[0], node.out.dk->shape[0]);
  const gpu::QkNormWeightPlan plan = gpu::qk_norm_backward_weight(node.in.qkv->dtype, args);
  args.at_once = plan.at_once;
  const int64_t stride = int64_t{args.q_width} + args.k_width;
  return node.kernel(
      [args, plan, stride, adds = node.adds](const Operands<ops::QkNormGradWeight>& at) {
        gpu::QkNormArgs now = args;
        now.rstd = const_cast<float*>(at.in.rstd);  // only read
        now.x = at.in.qkv;
        now.dy = at.in.dy;
        now.parts = reinterpret_cast<float*>(at.scratch);
        start(at.launch, plan.gradients, now);
        gpu::ColumnPartsArgs sum{.parts = now.parts,
                                 .out = at.out.dq,
                                 .count = plan.parts,
                                 .columns = args.q_width,
                                 .stride = stride,
                                 .accumulate = adds.dq ? 1 : 0};
        start(at.launch, plan.q_sum, sum);
        sum.parts += args.q_width;
        sum.out = at.out.dk;
        sum.columns = args.k_width;
        sum.accumulate = adds.dk ? 1 : 0;
        start(at.launch, plan.k_sum, sum);
      },
      plan.parts * stride * size_of(DType::kF32));
}

}  // namespace strata::device
