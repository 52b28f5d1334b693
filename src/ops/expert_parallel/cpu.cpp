#include "device/cpu/cpu.h"
#include "ops/expert_parallel/expert_parallel.h"

namespace strata::device {

template <>
BoundKernel bind(Cpu, const Bind<ops::OwnExperts>& node) {
  return node.kernel(
      [attrs = node.attrs, slots = node.in.ids->shape.elements()](const Operands<ops::OwnExperts>& at) {
        for (int64_t i = 0; i < slots; ++i)
          at.out.own[i] = attrs.own(at.in.ids[i], graph::coordinates_in(at.in.rank));
      });
}

template <>
BoundKernel bind(Cpu, const Bind<ops::ExpertRounds>& node) {
  return node.kernel(
      [ranks = node.in.end->shape[0] / 2, adds = node.adds.rounds](const Operands<ops::ExpertRounds>& at) {
        if (!adds) *at.out.rounds = 0;
        for (int64_t rank = 0; rank < ranks; ++rank) *at.out.rounds += at.in.end[2 * rank + 1];
      });
}

}  // namespace strata::device
