#include "kernels/cpu/qk_norm.h"

#include "device/cpu/cpu.h"
#include "ops/qk_norm/qk_norm.h"

namespace strata::device {
namespace {

// By the widths of the groups.
cpu::QkNormShape qk_norm_shape(const graph::Value& qkv, const ops::QkNormAttrs& attrs, int64_t q_width,
                               int64_t k_width) {
  return {.rows = qkv.shape[0],
          .q_groups = qkv.segments[0] / q_width,
          .q_width = q_width,
          .k_groups = qkv.segments[1] / k_width,
          .k_width = k_width,
          .row_stride = qkv.shape[1],
          .eps = static_cast<float>(attrs.eps),
          .weight_offset = static_cast<float>(attrs.weight_offset),
          .dtype = qkv.dtype};
}

}  // namespace

template <>
BoundKernel bind(Cpu, const Bind<ops::QkNorm>& node) {
  const auto shape =
      qk_norm_shape(*node.in.qkv, node.attrs, node.in.q_weight->shape[0], node.in.k_weight->shape[0]);
  return node.kernel([shape](const Operands<ops::QkNorm>& at) {
    cpu::qk_norm_forward(shape, at.out.y, at.out.rstd, at.in.qkv, at.in.q_weight, at.in.k_weight,
                         at.in.means);
  });
}

template <>
BoundKernel bind(Cpu, const Bind<ops::QkNormGradInput>& node) {
  const auto shape =
      qk_norm_shape(*node.in.qkv, node.attrs, node.in.q_weight->shape[0], node.in.k_weight->shape[0]);
  return node.kernel([shape](const Operands<ops::QkNormGradInput>& at) {
    cpu::qk_norm_backward_input(shape, at.out.dx, at.in.dy, at.in.qkv, at.in.rstd, at.in.q_weight,
                                at.in.k_weight, at.in.means);
  });
}

template <>
BoundKernel bind(Cpu, const Bind<ops::QkNormGradWeight>& node) {
  const auto shape = qk_norm_shape(*node.in.qkv, node.attrs, node.out.dq->shape[0], node.out.dk->shape[0]);
  return node.kernel(
      [shape, adds = node.adds](const Operands<ops::QkNormGradWeight>& at) {
        cpu::qk_norm_backward_weight(shape, at.out.dq, at.out.dk, at.in.dy, at.in.qkv, at.in.rstd, adds.dq,
                                     adds.dk, at.scratch);
      },
      cpu::qk_norm_weight_scratch_bytes(shape));
}

template <>
BoundKernel bind(Cpu, const Bind<ops::QkMeans>& node) {
  const graph::Value& qkv = *node.in.qkv;
  const auto shape = qk_norm_shape(qkv, node.attrs, qkv.segments[0], qkv.segments[1]);
  return node.kernel(
      [shape, q_whole = node.attrs.q_width, k_whole = node.attrs.k_width](const Operands<ops::QkMeans>& at) {
        cpu::qk_norm_means(shape, q_whole, k_whole, at.out.means, at.in.qkv, at.in.dy, at.in.q_weight,
                           at.in.k_weight);
      });
}

}  // namespace strata::device
