#include "ops/expert_dispatch/expert_dispatch.h"

#include "device/cpu/cpu.h"
#include "device/expert_dispatch.h"
#include "ops/expert_dispatch/way.h"

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
BoundKernel bind(Cpu, const Bind<ops::PlanDispatch>& node) {
  return bind_on_host(node);
}

template <>
BoundKernel bind(Cpu, const Bind<ops::DispatchRows>& node) {
  return bind_on_host(node);
}

template <>
BoundKernel bind(Cpu, const Bind<ops::CombineRows>& node) {
  return bind_on_host(node);
}

template <>
BoundKernel bind(Cpu, const Bind<ops::CombineSlotGrads>& node) {
  return bind_on_host(node);
}

template <>
BoundKernel bind(Cpu, const Bind<ops::RemainingTokens>& node) {
  return node.kernel([tokens = node.attrs.tokens](const Operands<ops::RemainingTokens>& at) {
    const int32_t end = at.in.way[ops::Way::kEnd];
    *at.out.next = end < tokens ? end : 0;
  });
}

template <>
BoundKernel bind(Cpu, const Bind<ops::ExpertRounds>& node) {
  return node.kernel([adds = node.adds.rounds](const Operands<ops::ExpertRounds>& at) {
    if (!adds) *at.out.rounds = 0;
    *at.out.rounds += at.in.way[ops::Way::kBegin] > 0 ? 1 : 0;
  });
}

}  // namespace strata::device
