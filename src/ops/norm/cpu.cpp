#include "kernels/cpu/norm.h"

#include "device/cpu/cpu.h"
#include "ops/norm/norm.h"

namespace strata::device {
namespace {

template <typename Attrs>
cpu::NormShape norm_shape(const graph::Value& rows, const Attrs& attrs) {
  cpu::NormShape shape{
      .rows = rows.shape[0], .dim = rows.shape[1], .eps = static_cast<float>(attrs.eps), .dtype = rows.dtype};
  if constexpr (requires { attrs.weight_offset; })
    shape.weight_offset = static_cast<float>(attrs.weight_offset);
  return shape;
}

}  // namespace

template <>
BoundKernel bind(Cpu, const Bind<ops::RmsNorm>& node) {
  return node.kernel([shape = norm_shape(*node.in.x, node.attrs)](const Operands<ops::RmsNorm>& at) {
    cpu::rms_norm_forward(shape, at.out.y, at.out.h, at.out.rstd, at.in.x, at.in.residual, at.in.weight);
  });
}

template <>
BoundKernel bind(Cpu, const Bind<ops::RmsNormGradInput>& node) {
  return node.kernel([shape = norm_shape(*node.in.h, node.attrs)](const Operands<ops::RmsNormGradInput>& at) {
    cpu::rms_norm_backward_input(shape, at.out.dx, at.in.dy, at.in.h, at.in.rstd, at.in.weight, at.in.dh);
  });
}

template <>
BoundKernel bind(Cpu, const Bind<ops::RmsNormGradWeight>& node) {
  const cpu::NormShape shape = norm_shape(*node.in.h, node.attrs);
  return node.kernel(
      [shape, adds = node.adds.dw](const Operands<ops::RmsNormGradWeight>& at) {
        cpu::rms_norm_backward_weight(shape, at.out.dw, at.in.dy, at.in.h, at.in.rstd, adds, at.scratch);
      },
      cpu::rms_norm_weight_scratch_bytes(shape));
}

template <>
BoundKernel bind(Cpu, const Bind<ops::LayerNorm>& node) {
  return node.kernel([shape = norm_shape(*node.in.x, node.attrs)](const Operands<ops::LayerNorm>& at) {
    cpu::layer_norm_forward(shape, at.out.y, at.out.h, at.out.mean, at.out.rstd, at.in.x, at.in.residual,
                            at.in.weight, at.in.bias);
  });
}

template <>
BoundKernel bind(Cpu, const Bind<ops::LayerNormGradInput>& node) {
  return node.kernel(
      [shape = norm_shape(*node.in.h, node.attrs)](const Operands<ops::LayerNormGradInput>& at) {
        cpu::layer_norm_backward_input(shape, at.out.dx, at.in.dy, at.in.h, at.in.mean, at.in.rstd,
                                       at.in.weight, at.in.dh);
      });
}

template <>
BoundKernel bind(Cpu, const Bind<ops::LayerNormGradWeight>& node) {
  const cpu::NormShape shape = norm_shape(*node.in.h, node.attrs);
  return node.kernel(
      [shape, adds = node.adds.dw](const Operands<ops::LayerNormGradWeight>& at) {
        cpu::layer_norm_backward_weight(shape, at.out.dw, at.out.db, at.in.dy, at.in.h, at.in.mean,
                                        at.in.rstd, adds, at.scratch);
      },
      cpu::layer_norm_weight_scratch_bytes(shape));
}

}  // namespace strata::device
