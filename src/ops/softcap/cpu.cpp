#include <cstring>

#include "device/cpu/cpu.h"
#include "kernels/cpu/softmax_loss.h"
#include "ops/softcap/softcap.h"

namespace strata::device {

template <>
BoundKernel bind(Cpu, const Bind<ops::Softcap>& node) {
  return node.kernel([n = node.in.x->shape.elements(),
                      cap = static_cast<float>(node.attrs.softcap)](const Operands<ops::Softcap>& at) {
    if (at.out.y != at.in.x) std::memcpy(at.out.y, at.in.x, static_cast<size_t>(n) * sizeof(float));
    cpu::detail::cap_row(at.out.y, n, cap);
  });
}

}  // namespace strata::device
