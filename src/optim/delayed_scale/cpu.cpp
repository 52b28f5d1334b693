#include "optim/delayed_scale/delayed_scale.h"

#include <cstring>

#include "optim/cpu.h"
#include "quantize/delayed.h"

namespace strata::device {

template <>
BoundKernel bind(Cpu, const Bind<optim::FollowHistory>& node) {
  return node.kernel(
      [size = static_cast<size_t>(node.in.history->shape[1])](const Operands<optim::FollowHistory>& at) {
        optim::GuardDecision decision;
        std::memcpy(&decision, at.in.decision, sizeof decision);
        if (decision.skip == 0) quantize::follow_step({at.out.history, size}, *at.in.greatest);
      });
}

}  // namespace strata::device
