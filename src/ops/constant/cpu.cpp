#include <algorithm>

#include "device/cpu/cpu.h"
#include "ops/constant/constant.h"

namespace strata::device {

template <>
BoundKernel bind(Cpu, const Bind<ops::Constant>& node) {
  return node.kernel([attrs = node.attrs](const Operands<ops::Constant>& at) {
    std::fill_n(at.out.values, attrs.elements, static_cast<float>(attrs.number));
  });
}

}  // namespace strata::device
