#include "device/cpu/bind.h"
#include "kernels/cpu/capacity.h"
#include "ops/capacity.h"

namespace strata::device::cpu_bind {
namespace {

// (ids, weights, begins?) → kept
BoundKernel limit_experts(const BindRequest& request) {
  const auto& attrs = request.view.attrs<ops::CapacityAttrs>();
  const graph::Value& ids = request.view.in(ops::LimitExperts::kIds);
  const cpu::CapacityShape shape{.tokens = ids.shape[0],
                                 .k = ids.shape[1],
                                 .experts = attrs.experts,
                                 .rows = attrs.rows,
                                 .capacity = attrs.capacity,
                                 .greatest = attrs.keep == ops::CapacityAttrs::Keep::kGreatest,
                                 .sequence = attrs.idle.sequence,
                                 .idle = attrs.idle.count};
  return bound(
      [](Launch&, void* plan, std::byte* const* p) {
        cpu::limit_experts(plan_of<cpu::CapacityShape>(plan), i32(p[3]), i32(p[0]), f32(p[1]), i32(p[2]),
                           p[4]);
      },
      shape, cpu::limit_experts_scratch_bytes(shape));
}

// (weights, ids) → kept
BoundKernel weights_of_kept(const BindRequest& request) {
  return bound(
      [](Launch&, void* plan, std::byte* const* p) {
        cpu::weights_of_kept(plan_of<int64_t>(plan), f32(p[2]), f32(p[0]), i32(p[1]));
      },
      request.view.in(ops::WeightsOfKept::kIds).shape.elements());
}

}  // namespace

std::span<const Binding> capacity_bindings() {
  static const Binding kTable[] = {
      {&ops::kLimitExperts, limit_experts},
      {&ops::kWeightsOfKept, weights_of_kept},
  };
  return kTable;
}

}  // namespace strata::device::cpu_bind
