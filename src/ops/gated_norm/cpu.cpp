#include "kernels/cpu/gated_norm.h"

#include "device/cpu/cpu.h"
#include "ops/gated_norm/gated_norm.h"

namespace strata::device {
namespace {

cpu::GatedNormShape gated_norm_shape(const graph::Value& x, int64_t groups,
                                     const ops::GatedNormAttrs& attrs) {
  return {.rows = x.shape[0],
          .groups = groups,
          .width = x.shape[1] / groups,
          .eps = static_cast<float>(attrs.eps),
          .gate_first = attrs.gate_first,
          .gate = attrs.gate,
          .shared = attrs.shared,
          .dtype = x.dtype};
}

}  // namespace

template <>
BoundKernel bind(Cpu, const Bind<ops::GatedNorm>& node) {
  const auto shape = gated_norm_shape(*node.in.x, node.out.rstd->shape[1], node.attrs);
  return node.kernel([shape](const Operands<ops::GatedNorm>& at) {
    cpu::gated_norm_forward(shape, at.out.y, at.out.rstd, at.in.x, at.in.gate, at.in.weight, at.in.means);
  });
}

template <>
BoundKernel bind(Cpu, const Bind<ops::GatedNormGradInput>& node) {
  const auto shape = gated_norm_shape(*node.in.x, node.in.rstd->shape[1], node.attrs);
  return node.kernel([shape](const Operands<ops::GatedNormGradInput>& at) {
    cpu::gated_norm_backward_input(shape, at.out.dx, at.out.dgate, at.in.dy, at.in.x, at.in.gate, at.in.rstd,
                                   at.in.weight, at.in.means);
  });
}

template <>
BoundKernel bind(Cpu, const Bind<ops::GatedNormGradWeight>& node) {
  const auto shape = gated_norm_shape(*node.in.x, node.in.rstd->shape[1], node.attrs);
  return node.kernel(
      [shape, adds = node.adds.dw](const Operands<ops::GatedNormGradWeight>& at) {
        cpu::gated_norm_backward_weight(shape, at.out.dw, at.in.dy, at.in.x, at.in.gate, at.in.rstd, adds,
                                        at.scratch);
      },
      cpu::gated_norm_weight_scratch_bytes(shape));
}

template <>
BoundKernel bind(Cpu, const Bind<ops::GatedMeans>& node) {
  const auto shape = gated_norm_shape(*node.in.x, 1, node.attrs);
  return node.kernel([shape, whole = node.attrs.group](const Operands<ops::GatedMeans>& at) {
    cpu::gated_norm_means(shape, whole, at.out.means, at.in.x, at.in.gate, at.in.dy, at.in.weight);
  });
}

}  // namespace strata::device
