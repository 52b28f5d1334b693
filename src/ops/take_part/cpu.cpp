#include <algorithm>

#include "device/cpu/cpu.h"
#include "ops/take_part/take_part.h"

namespace strata::device {

template <>
BoundKernel bind(Cpu, const Bind<ops::TakePart>& node) {
  return node.kernel([numbers = node.out.part->shape[0], axis = node.attrs.axis,
                      ranks = node.attrs.ranks](const Operands<ops::TakePart>& at) {
    std::copy_n(at.in.x + graph::place_in(at.in.rank, axis, ranks) * numbers, numbers, at.out.part);
  });
}

template <>
BoundKernel bind(Cpu, const Bind<ops::TakePartGrad>& node) {
  return node.kernel([numbers = node.in.dy->shape[0], axis = node.attrs.axis, ranks = node.attrs.ranks,
                      adds = node.adds.dx](const Operands<ops::TakePartGrad>& at) {
    if (!adds) std::fill_n(at.out.dx, ranks * numbers, 0.0f);
    float* const to = at.out.dx + graph::place_in(at.in.rank, axis, ranks) * numbers;
    for (int64_t i = 0; i < numbers; ++i) to[i] += at.in.dy[i];
  });
}

}  // namespace strata::device
