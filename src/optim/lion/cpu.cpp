#include "optim/cpu.h"
#include "optim/lion/lion.h"

namespace strata::device {

template <>
BoundKernel bind(Cpu, const Bind<optim::LionUpdate>& node) {
  const optim::UpdateRule& rule = node.attrs.rule;
  return node.kernel([own = optim::UpdateElements(node.attrs, node.in.parameter->shape),
                      constants = lion_constants(rule.optimizer.as<optim::Lion>(), rule)](
                         const Operands<optim::LionUpdate>& at) {
    cpu::lion_update(own.count, at.out.parameter + own.first, at.out.momentum + own.state_first,
                     at.in.gradient + own.first, scalars_at(at.in.scalars), constants);
  });
}

}  // namespace strata::device
