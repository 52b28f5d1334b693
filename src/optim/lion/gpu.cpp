#include "device/gpu/gpu.h"
#include "optim/lion/lion.h"

namespace strata::device {

template <>
BoundKernel bind(Gpu, const Bind<optim::LionUpdate>& node) {
  const optim::UpdateElements own(node.attrs, node.in.parameter->shape);
  const auto& constants = node.attrs.rule.optimizer.as<optim::Lion>();
  gpu::ElementUpdateArgs args{};
  args.n = own.count;
  args.beta1 = constants.beta1;
  args.beta2 = constants.beta2;
  args.weight_decay = static_cast<float>(node.attrs.rule.weight_decay);
  args.lr_scale = static_cast<float>(node.attrs.rule.lr_scale);
  return node.kernel(
      [own, args, kernel = gpu::element_update("lion", own.count)](const Operands<optim::LionUpdate>& at) {
        gpu::ElementUpdateArgs now = args;
        now.master = at.out.parameter + own.first;
        now.m = at.out.momentum + own.state_first;
        now.grad = at.in.gradient + own.first;
        now.scalars = update_scalars_at(at.in.scalars);
        start(at.launch, kernel, now);
      });
}

}  // namespace strata::device
