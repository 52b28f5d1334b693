#include "optim/element_update_gpu.h"
#include "optim/lion/lion.h"

namespace strata::device {

template <>
BoundKernel bind(Gpu, const Bind<optim::LionUpdate>& node) {
  const optim::UpdateElements own(node.attrs, node.in.parameter->shape);
  const auto& constants = node.attrs.rule.optimizer.as<optim::Lion>();
  gpu::ElementUpdateArgs args = element_update_args(own, node.attrs.rule);
  args.beta1 = constants.beta1;
  args.beta2 = constants.beta2;
  return node.kernel(
      [own, args, kernel = gpu::element_update("lion", own.count)](const Operands<optim::LionUpdate>& at) {
        start(at.launch, kernel,
              placed(args, own, at.out.parameter, at.out.momentum, nullptr, at.in.gradient, at.in.scalars));
      });
}

}  // namespace strata::device
