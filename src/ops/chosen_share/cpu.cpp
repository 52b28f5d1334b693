#include "ops/chosen_share/chosen_share.h"

#include <cmath>

#include "device/cpu/cpu.h"

namespace strata::device {

// A few numbers a row, of a warm-up only.
template <>
BoundKernel bind(Cpu, const Bind<ops::ChosenShare>& node) {
  return node.kernel([shape = node.in.lse->shape, heads = static_cast<double>(node.attrs.heads),
                      adds = node.adds.sum](const Operands<ops::ChosenShare>& at) {
    double sum = 0;
    for (int64_t i = 0; i < shape.elements(); ++i) {
      const int64_t sequence = i / (shape[1] * shape[2]), row = i % shape[2];
      if (at.in.targets[sequence * shape[2] + row] < 0) continue;
      sum += static_cast<double>(std::exp(at.in.chosen_lse[i] - at.in.lse[i]));
    }
    *at.out.sum = (adds ? *at.out.sum : 0) + sum / heads;
  });
}

}  // namespace strata::device
