#include "kernels/cpu/gated_norm.h"

#include "device/cpu/cpu.h"
#include "ops/gated_norm/gated_norm.h"

namespace strata::device {
namespace {

cpu::GatedNormShape shape_of(const graph::Value& x, const ops::GatedNormAttrs& attrs, int64_t groups,
                             bool is_shared) {
  return {.rows = x.shape[0],
          .groups = groups,
          .size = x.shape[1] / groups,
          .is_shared = is_shared,
          .eps = static_cast<float>(attrs.eps),
          .gate_first = attrs.gate_first,
          .kind = attrs.kind,
          .dtype = x.dtype};
}

template <typename Op>
cpu::GatedNormShape shape_of(const Bind<Op>& node) {
  const graph::Value& x = *node.in.x;
  const int64_t groups = node.in.means ? 1 : x.shape[1] / node.attrs.group;
  return shape_of(x, node.attrs, groups, groups > 1 && node.in.weight->shape[0] == node.attrs.group);
}

}  // namespace

template <>
BoundKernel bind(Cpu, const Bind<ops::GatedNorm>& node) {
  return node.kernel([shape = shape_of(node)](const Operands<ops::GatedNorm>& at) {
    cpu::gated_norm_forward(shape, at.out.y, at.out.rstd, at.in.x, at.in.gate, at.in.weight, at.in.means);
  });
}

template <>
BoundKernel bind(Cpu, const Bind<ops::GatedNormGradInput>& node) {
  return node.kernel([shape = shape_of(node)](const Operands<ops::GatedNormGradInput>& at) {
    cpu::gated_norm_backward_input(shape, at.out.dx, at.out.dgate, at.in.dy, at.in.x, at.in.gate,
                                   at.in.weight, at.in.rstd, at.in.means);
  });
}

template <>
BoundKernel bind(Cpu, const Bind<ops::GatedNormGradWeight>& node) {
  const cpu::GatedNormShape shape =
      shape_of(*node.in.x, node.attrs, node.in.rstd->shape[1], node.attrs.is_shared);
  return node.kernel(
      [shape, adds = node.adds.dw](const Operands<ops::GatedNormGradWeight>& at) {
        cpu::gated_norm_backward_weight(shape, at.out.dw, at.in.dy, at.in.x, at.in.gate, at.in.rstd, adds,
                                        at.scratch);
      },
      cpu::gated_norm_weight_scratch_bytes(shape));
}

template <>
BoundKernel bind(Cpu, const Bind<ops::GatedMeans>& node) {
  const cpu::GatedNormShape shape = shape_of(*node.in.x, node.attrs, 1, false);
  return node.kernel([shape, whole = node.attrs.group](const Operands<ops::GatedMeans>& at) {
    cpu::gated_norm_means(shape, whole, at.out.means, at.in.x, at.in.gate, at.in.dy, at.in.weight);
  });
}

}  // namespace strata::device
