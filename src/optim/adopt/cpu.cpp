#include "optim/cpu.h"
#include "optim/adopt/adopt.h"

namespace strata::device {

template <>
BoundKernel bind(Cpu, const Bind<optim::AdoptUpdate>& node) {
  const auto& adopt = node.attrs.rule.optimizer.as<optim::Adopt>();
  return node.kernel([own = optim::UpdateElements(node.attrs, node.in.parameter->shape),
                      constants = adamw_constants({adopt.beta1, adopt.beta2, adopt.eps}, node.attrs.rule)](
                         const Operands<optim::AdoptUpdate>& at) {
    cpu::adopt_update(own.count,
                      {at.out.parameter + own.first, at.out.m + own.state_first, at.out.v + own.state_first,
                       at.in.gradient + own.first},
                      scalars_at(at.in.scalars), constants);
  });
}

}  // namespace strata::device
