#include "ops/copy/copy.h"

#include <cstring>

#include "base/parallel.h"
#include "device/cpu/cpu.h"

namespace strata::device {

template <>
BoundKernel bind(Cpu, const Bind<ops::Copy>& node) {
  return node.kernel([bytes = node.in.x->bytes()](const Operands<ops::Copy>& at) {
    parallel_ranges(bytes, int64_t{1} << 16, [&](int64_t begin, int64_t end) {
      std::memcpy(at.out.copy + begin, at.in.x + begin, static_cast<size_t>(end - begin));
    });
  });
}

}  // namespace strata::device
