#include "kernels/cpu/clamp.h"

#include "device/cpu/cpu.h"
#include "ops/clamp/clamp.h"

namespace strata::device {

template <>
BoundKernel bind(Cpu, const Bind<ops::Clamp>& node) {
  return node.kernel([n = node.in.x->shape.elements(), limit = static_cast<float>(node.attrs.limit),
                      dtype = node.in.x->dtype](const Operands<ops::Clamp>& at) {
    cpu::clamp_forward(n, at.out.y, at.in.x, limit, dtype);
  });
}

template <>
BoundKernel bind(Cpu, const Bind<ops::ClampGrad>& node) {
  return node.kernel([n = node.in.x->shape.elements(), limit = static_cast<float>(node.attrs.limit),
                      dtype = node.in.x->dtype](const Operands<ops::ClampGrad>& at) {
    cpu::clamp_backward(n, at.out.dx, at.in.dy, at.in.x, limit, dtype);
  });
}

namespace {

cpu::ClampedGate gate_of(const graph::Value& gate_up, const ops::ClampedGatedAttrs& attrs) {
  return {.rows = gate_up.shape[0],
          .ffn = gate_up.shape[1] / 2,
          .alpha = static_cast<float>(attrs.alpha),
          .limit = static_cast<float>(attrs.limit),
          .dtype = gate_up.dtype};
}

}  // namespace

template <>
BoundKernel bind(Cpu, const Bind<ops::ClampedGated>& node) {
  return node.kernel([gate = gate_of(*node.in.gate_up, node.attrs)](const Operands<ops::ClampedGated>& at) {
    cpu::clamped_gated_forward(gate, at.out.y, at.in.gate_up);
  });
}

template <>
BoundKernel bind(Cpu, const Bind<ops::ClampedGatedGrad>& node) {
  return node.kernel(
      [gate = gate_of(*node.in.gate_up, node.attrs)](const Operands<ops::ClampedGatedGrad>& at) {
        cpu::clamped_gated_backward(gate, at.out.d_gate_up, at.in.dy, at.in.gate_up);
      });
}

}  // namespace strata::device
