#include "optim/cpu.h"
#include "optim/router_bias/router_bias.h"

namespace strata::device {

template <>
BoundKernel bind(Cpu, const Bind<optim::RouterBiasUpdate>& node) {
  return node.kernel([experts = node.in.bias->shape[0],
                      rate = node.attrs.rate](const Operands<optim::RouterBiasUpdate>& at) {
    cpu::router_bias_update(experts, at.out.bias, at.in.loads, scalars_at(at.in.scalars), rate);
  });
}

}  // namespace strata::device
