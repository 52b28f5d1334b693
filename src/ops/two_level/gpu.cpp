#include "ops/two_level/two_level.h"

#include "device/gpu/gpu.h"
#include "kernels/gpu/launch_experts.h"

namespace strata::device {
namespace {

template <typename Op>
gpu::TwoLevelArgs levels_of(const Bind<Op>& node) {
  const Shape& logits = node.in.logits->shape;
  gpu::TwoLevelArgs args{};
  args.tokens = static_cast<int32_t>(logits[0]);
  args.group_count = static_cast<int32_t>(node.in.groups->shape[1]);
  args.experts = static_cast<int32_t>(logits[1]);
  return args;
}

}  // namespace

template <>
BoundKernel bind(Gpu, const Bind<ops::TwoLevelLogits>& node) {
  return node.kernel([sizes = levels_of(node)](const Operands<ops::TwoLevelLogits>& at) {
    gpu::TwoLevelArgs args = sizes;
    args.y = at.out.y;
    args.groups = at.in.groups;
    args.logits = at.in.logits;
    start(at.launch, gpu::router("two_level", args.tokens), args);
  });
}

template <>
BoundKernel bind(Gpu, const Bind<ops::TwoLevelLogitsGrad>& node) {
  return node.kernel([sizes = levels_of(node)](const Operands<ops::TwoLevelLogitsGrad>& at) {
    gpu::TwoLevelArgs args = sizes;
    args.dgroups = at.out.dgroups;
    args.dlogits = at.out.dlogits;
    args.dy = at.in.dy;
    args.groups = at.in.groups;
    args.logits = at.in.logits;
    start(at.launch, gpu::router("two_level_gradient", args.tokens), args);
  });
}

}  // namespace strata::device
