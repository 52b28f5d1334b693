#include "device/cpu/cpu.h"
#include "kernels/cpu/embedding.h"
#include "ops/predict/predict.h"

namespace strata::device {

template <>
BoundKernel bind(Cpu, const Bind<ops::TargetsAhead>& node) {
  return node.kernel([n = node.in.targets->shape[0],
                      length = node.attrs.sequence_length](const Operands<ops::TargetsAhead>& at) {
    cpu::targets_ahead(n, length, at.out.tokens, at.out.ahead, at.in.targets, at.in.ahead);
  });
}

}  // namespace strata::device
