#include "kernels/cpu/activation.h"

#include "device/cpu/cpu.h"
#include "ops/activation/activation.h"

namespace strata::device {

template <>
BoundKernel bind(Cpu, const Bind<ops::Activation>& node) {
  const graph::Value& x = *node.in.x;
  return node.kernel(
      [kind = node.attrs.kind, n = x.shape.elements(), dtype = x.dtype](const Operands<ops::Activation>& at) {
        cpu::activation_forward(kind, n, at.out.y, at.in.x, dtype);
      });
}

template <>
BoundKernel bind(Cpu, const Bind<ops::ActivationGrad>& node) {
  const graph::Value& dy = *node.in.dy;
  return node.kernel([kind = node.attrs.kind, n = dy.shape.elements(),
                      dtype = dy.dtype](const Operands<ops::ActivationGrad>& at) {
    cpu::activation_backward(kind, n, at.out.dx, at.in.dy, at.in.x, dtype);
  });
}

template <>
BoundKernel bind(Cpu, const Bind<ops::Gated>& node) {
  const graph::Value& y = *node.out.y;
  return node.kernel([kind = node.attrs.kind, rows = y.shape[0], columns = y.shape[1],
                      dtype = y.dtype](const Operands<ops::Gated>& at) {
    cpu::gated_forward(kind, rows, columns, at.out.y, at.in.gate_up, dtype);
  });
}

template <>
BoundKernel bind(Cpu, const Bind<ops::GatedGrad>& node) {
  const graph::Value& dy = *node.in.dy;
  return node.kernel([kind = node.attrs.kind, rows = dy.shape[0], columns = dy.shape[1],
                      dtype = dy.dtype](const Operands<ops::GatedGrad>& at) {
    cpu::gated_backward(kind, rows, columns, at.out.d_gate_up, at.in.dy, at.in.gate_up, dtype);
  });
}

}  // namespace strata::device
