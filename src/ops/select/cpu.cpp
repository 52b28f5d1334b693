#include <cstring>

#include "device/cpu/cpu.h"
#include "ops/select/select.h"

namespace strata::device {

template <>
BoundKernel bind(Cpu, const Bind<ops::TakeRow>& node) {
  return node.kernel([bytes = node.out.row->bytes()](const Operands<ops::TakeRow>& at) {
    std::memcpy(at.out.row, at.in.x + *at.in.index * bytes, static_cast<size_t>(bytes));
  });
}

}  // namespace strata::device
