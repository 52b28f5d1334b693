#include "device/cpu/cpu.h"
#include "graph/loss_seed.h"

namespace strata::device {

template <>
BoundKernel bind(Cpu, const Bind<graph::LossSeed>& node) {
  return node.kernel([weight = node.attrs.weight](const Operands<graph::LossSeed>& at) {
    const auto main = static_cast<double>(*at.in.main_terms), own = static_cast<double>(*at.in.terms);
    const double scale = at.in.scale != nullptr ? static_cast<double>(*at.in.scale) : 1;
    *at.out.seed = own > 0 ? static_cast<float>(weight * main / own * scale) : 0.0f;
  });
}

}  // namespace strata::device
