#include "ops/capacity/capacity.h"

#include "ops/experts/gpu.h"

namespace strata::device {

template <>
BoundKernel bind(Gpu, const Bind<ops::LimitExperts>& node) {
  const ops::CapacityAttrs& attrs = node.attrs;
  const Shape& ids = node.in.ids->shape;
  const bool greatest = attrs.keep == ops::CapacityAttrs::Keep::kGreatest;
  GpuScratch scratch;
  GpuExpertLists lists(ids, ids[0], attrs.experts, scratch);
  lists.leave_out(attrs.idle.sequence, attrs.idle.count);
  gpu::LimitExpertsArgs sizes{};
  sizes.count = static_cast<int32_t>(ids.elements());
  sizes.experts = static_cast<int32_t>(attrs.experts);
  sizes.per_token = static_cast<int32_t>(ids[1]);
  sizes.of_group = static_cast<int32_t>(attrs.rows * ids[1]);
  sizes.capacity = static_cast<int32_t>(attrs.capacity);
  sizes.greatest = greatest ? 1 : 0;
  return node.kernel(
      [lists, sizes, kernel = gpu::limit_experts(ids.elements())](const Operands<ops::LimitExperts>& at) {
        const gpu::ExpertsSortArgs sorted = lists.sort(at.launch, at.in.ids, nullptr, at.scratch);
        gpu::LimitExpertsArgs args = sizes;
        args.kept = at.out.kept;
        args.ids = at.in.ids;
        args.weights = at.in.weights;
        args.begins = at.in.begins;
        args.slots = sorted.slots;
        args.offsets = sorted.offsets;
        start(at.launch, kernel, args);
      },
      scratch.bytes());
}

template <>
BoundKernel bind(Gpu, const Bind<ops::WeightsOfKept>& node) {
  const int64_t n = node.in.ids->shape.elements();
  return node.kernel([n, kernel = gpu::weights_of_kept(n)](const Operands<ops::WeightsOfKept>& at) {
    start(at.launch, kernel,
          gpu::KeptWeightsArgs{.kept = at.out.kept, .weights = at.in.weights, .ids = at.in.ids, .n = n});
  });
}

}  // namespace strata::device
