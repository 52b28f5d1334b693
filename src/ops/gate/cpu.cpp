#include "kernels/cpu/gate.h"

#include "device/cpu/cpu.h"
#include "ops/gate/gate.h"

namespace strata::device {

template <>
BoundKernel bind(Cpu, const Bind<ops::Gate>& node) {
  const graph::Value& x = *node.in.x;
  return node.kernel(
      [kind = node.attrs.kind, n = x.shape.elements(), dtype = x.dtype](const Operands<ops::Gate>& at) {
        cpu::gate_forward(kind, n, at.out.y, at.in.x, at.in.gate, dtype);
      });
}

template <>
BoundKernel bind(Cpu, const Bind<ops::GateGrad>& node) {
  const graph::Value& x = *node.in.x;
  return node.kernel(
      [kind = node.attrs.kind, n = x.shape.elements(), dtype = x.dtype](const Operands<ops::GateGrad>& at) {
        cpu::gate_backward(kind, n, at.out.dx, at.out.dgate, at.in.dy, at.in.x, at.in.gate, dtype);
      });
}

}  // namespace strata::device
