#include "optim/adamw8bit/adamw8bit.h"

#include <algorithm>

#include "device/gpu/gpu.h"
#include "tensor/dynamic_map.h"

namespace strata::device {

static_assert(kQuantizationBlock == 256, "a block of the kernel's threads is one of elements");

template <>
BoundKernel bind(Gpu, const Bind<optim::AdamW8BitUpdate>& node) {
  const optim::UpdateElements own(node.attrs, node.in.parameter->shape);
  const auto& adamw = node.attrs.rule.optimizer.as<optim::AdamW8Bit>().adamw;
  gpu::AdamW8BitArgs args{};
  args.n = own.count;
  args.beta1 = adamw.beta1;
  args.beta2 = adamw.beta2;
  args.eps = static_cast<float>(adamw.eps);
  args.weight_decay = static_cast<float>(node.attrs.rule.weight_decay);
  args.lr_scale = static_cast<float>(node.attrs.rule.lr_scale);
  std::copy_n(signed_dynamic_map().values.begin(), 256, args.m_map);
  std::copy_n(unsigned_dynamic_map().values.begin(), 256, args.v_map);
  return node.kernel(
      [own, args, kernel = gpu::adamw8bit_update(own.count)](const Operands<optim::AdamW8BitUpdate>& at) {
        gpu::AdamW8BitArgs now = args;
        now.master = at.out.parameter + own.first;
        now.m = at.out.m;
        now.m_scale = at.out.m_scale;
        now.v = at.out.v;
        now.v_scale = at.out.v_scale;
        now.grad = at.in.gradient + own.first;
        now.scalars = update_scalars_at(at.in.scalars);
        start(at.launch, kernel, now);
      });
}

}  // namespace strata::device
