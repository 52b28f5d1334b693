#include "kernels/cpu/two_level.h"

#include "device/cpu/cpu.h"
#include "ops/two_level/two_level.h"

namespace strata::device {
namespace {

template <typename Op>
cpu::TwoLevelShape levels_of(const Bind<Op>& node) {
  const Shape& logits = node.in.logits->shape;
  return {.tokens = logits[0], .groups = node.in.groups->shape[1], .experts = logits[1]};
}

}  // namespace

template <>
BoundKernel bind(Cpu, const Bind<ops::TwoLevelLogits>& node) {
  return node.kernel([shape = levels_of(node)](const Operands<ops::TwoLevelLogits>& at) {
    cpu::two_level_logits(shape, at.out.y, at.in.groups, at.in.logits);
  });
}

template <>
BoundKernel bind(Cpu, const Bind<ops::TwoLevelLogitsGrad>& node) {
  return node.kernel([shape = levels_of(node)](const Operands<ops::TwoLevelLogitsGrad>& at) {
    cpu::two_level_logits_backward(shape, at.out.dgroups, at.out.dlogits, at.in.dy, at.in.groups,
                                   at.in.logits);
  });
}

}  // namespace strata::device
