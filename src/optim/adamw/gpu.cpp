#include "device/gpu/gpu.h"
#include "optim/adamw/adamw.h"

namespace strata::device {

template <>
BoundKernel bind(Gpu, const Bind<optim::AdamWUpdate>& node) {
  const optim::UpdateElements own(node.attrs, node.in.parameter->shape);
  const optim::UpdateRule& rule = node.attrs.rule;
  const auto& adamw = rule.optimizer.as<optim::AdamW>();
  const gpu::ElementUpdateArgs args{.master = nullptr,
                                    .m = nullptr,
                                    .v = nullptr,
                                    .grad = nullptr,
                                    .copy = nullptr,
                                    .scalars = nullptr,
                                    .n = own.count,
                                    .beta1 = adamw.beta1,
                                    .beta2 = adamw.beta2,
                                    .eps = static_cast<float>(adamw.eps),
                                    .weight_decay = static_cast<float>(rule.weight_decay),
                                    .lr_scale = static_cast<float>(rule.lr_scale)};
  return node.kernel(
      [own, args, kernel = gpu::element_update("adamw", own.count)](const Operands<optim::AdamWUpdate>& at) {
        gpu::ElementUpdateArgs now = args;
        now.master = at.out.parameter + own.first;
        now.m = at.out.m + own.state_first;
        now.v = at.out.v + own.state_first;
        now.grad = at.in.gradient + own.first;
        now.scalars = update_scalars_at(at.in.scalars);
        if (at.out.encodings.size() > 0) now.copy = at.out.encodings[0] + own.first * size_of(DType::kBF16);
        start(at.launch, kernel, now);
      });
}

// There is one copy of a parameter.
template <>
bool writes(Gpu, const graph::View<optim::AdamWUpdate>& node, const graph::Value& encoded,
            const hardware::DeviceSpec&) {
  const Shape& shape = node.in.parameter->shape;
  return encoded.encoding.layout == kBf16Copy && optim::row_range(node.attrs, shape).rows == shape[0];
}

}  // namespace strata::device
