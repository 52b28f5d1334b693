#include "device/cpu/cpu.h"
#include "graph/sum.h"
#include "kernels/cpu/elementwise.h"

namespace strata::device {

template <>
BoundKernel bind(Cpu, const Bind<graph::Add>& node) {
  return node.kernel(
      [n = node.in.a->shape.elements(), dtype = node.in.a->dtype](const Operands<graph::Add>& at) {
        cpu::add(at.out.sum, at.in.a, at.in.b, n, dtype);
      });
}

}  // namespace strata::device
