#include "optim/adamw/adamw.h"
#include "optim/element_update_gpu.h"

namespace strata::device {

template <>
BoundKernel bind(Gpu, const Bind<optim::AdamWUpdate>& node) {
  const optim::UpdateElements own(node.attrs, node.in.parameter->shape);
  const optim::UpdateRule& rule = node.attrs.rule;
  const auto& adamw = rule.optimizer.as<optim::AdamW>();
  gpu::ElementUpdateArgs args = element_update_args(own, rule);
  args.beta1 = adamw.beta1;
  args.beta2 = adamw.beta2;
  args.eps = static_cast<float>(adamw.eps);
  return node.kernel(
      [own, args, kernel = gpu::element_update("adamw", own.count)](const Operands<optim::AdamWUpdate>& at) {
        gpu::ElementUpdateArgs now =
            placed(args, own, at.out.parameter, at.out.m, at.out.v, at.in.gradient, at.in.scalars);
        if (at.out.encodings.size() > 0) now.copy = at.out.encodings[0] + own.first * size_of(DType::kBF16);
        start(at.launch, kernel, now);
      });
}

// There is one copy of a parameter.
template <>
bool writes(Gpu, const graph::View<optim::AdamWUpdate>& node, const graph::Value& encoded,
            const hardware::DeviceSpec&) {
  const Shape& shape = node.in.parameter->shape;
  return encoded.encoding.layout == kPlainBf16 && optim::row_range(node.attrs, shape).rows == shape[0];
}

}  // namespace strata::device
