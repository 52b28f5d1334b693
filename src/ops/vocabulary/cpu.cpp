#include "device/cpu/cpu.h"
#include "ops/vocabulary/vocabulary.h"

namespace strata::device {

template <>
BoundKernel bind(Cpu, const Bind<ops::VocabStart>& node) {
  return node.kernel([attrs = node.attrs](const Operands<ops::VocabStart>& at) {
    const auto& [axis, parts, rows, ranks] = attrs;
    const int64_t first = graph::place_in(at.in.rank, axis, ranks) * parts;
    for (int64_t part = 0; part < parts; ++part)
      at.out.start[part] = static_cast<int32_t>((first + part) * rows);
  });
}

}  // namespace strata::device
