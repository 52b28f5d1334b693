#include "optim/adopt/adopt.h"
#include "optim/element_update_gpu.h"

namespace strata::device {

template <>
BoundKernel bind(Gpu, const Bind<optim::AdoptUpdate>& node) {
  const optim::UpdateElements own(node.attrs, node.in.parameter->shape);
  const auto& constants = node.attrs.rule.optimizer.as<optim::Adopt>();
  gpu::ElementUpdateArgs args = element_update_args(own, node.attrs.rule);
  args.beta1 = constants.beta1;
  args.beta2 = constants.beta2;
  args.eps = static_cast<float>(constants.eps);
  return node.kernel(
      [own, args, kernel = gpu::element_update("adopt", own.count)](const Operands<optim::AdoptUpdate>& at) {
        start(at.launch, kernel,
              placed(args, own, at.out.parameter, at.out.m, at.out.v, at.in.gradient, at.in.scalars));
      });
}

}  // namespace strata::device
