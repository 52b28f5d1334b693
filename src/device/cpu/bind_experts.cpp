#include <algorithm>

#include "base/error.h"
#include "device/cpu/bind.h"
#include "device/cpu/bindings.h"
#include "device/expert_rounds.h"
#include "kernels/cpu/expert_bias.h"
#include "kernels/cpu/experts.h"
#include "ops/expert_parallel.h"
#include "ops/experts.h"

namespace strata::device::cpu_bind {
namespace {

using graph::NodeView;
using Role = cpu::ExpertsRole;

BoundKernel bound_experts(const BindRequest& request, const cpu::ExpertsSpec& spec, Kernel run) {
  const std::string key =
      fmt::format("experts {} {} {} {} {} {} {} {} {}", static_cast<int>(spec.role), spec.tokens, spec.k,
                  spec.slots, spec.experts, spec.outputs, spec.inputs, name_of(spec.dtype), spec.accumulate);
  auto& slot = request.cache[key];
  if (!slot) slot = std::make_shared<const cpu::ExpertsPlan>(cpu::plan_experts(spec, request.device));
  return {run, slot, plan_of<cpu::ExpertsPlan>(slot.get()).scratch_bytes};
}

// (x, ids, w) → y and its like: what is multiplied by the weights.
template <Role role>
BoundKernel product(const BindRequest& request) {
  const NodeView& view = request.view;
  const graph::Value &ids = view.in(ops::ExpertsIn::kIds), &weight = view.in(ops::ExpertsIn::kWeight);
  const int64_t experts = view.attrs<ops::ExpertsAttrs>().experts;
  return bound_experts(request,
                       {.role = role,
                        .tokens = ops::tokens_of(view, ops::ExpertsIn::kIds, ops::ExpertsIn::kOffsets),
                        .k = ids.shape[1],
                        .slots = view.has(ops::ExpertsIn::kOffsets) ? ids.shape[0] : -1,
                        .experts = experts,
                        .outputs = weight.shape[0] / experts,
                        .inputs = weight.shape[1],
                        .dtype = view.in(ops::ExpertsIn::kX).dtype},
                       [](Launch&, void* plan, std::byte* const* p) {
                         cpu::run_experts(plan_of<cpu::ExpertsPlan>(plan), p[0], i32(p[1]), i32(p[3]), p[2],
                                          p[4], p[5]);
                       });
}

// (dy, x, ids) → dw
template <Role role>
BoundKernel grad_weight(const BindRequest& request) {
  using Op = ops::ExpertsGradWeight;
  const NodeView& view = request.view;
  const graph::Value& ids = view.in(Op::kIds);
  return bound_experts(request,
                       {.role = role,
                        .tokens = ops::tokens_of(view, Op::kIds, Op::kOffsets),
                        .k = ids.shape[1],
                        .slots = view.has(Op::kOffsets) ? ids.shape[0] : -1,
                        .experts = view.attrs<ops::ExpertsAttrs>().experts,
                        .outputs = view.in(Op::kDy).shape[1],
                        .inputs = view.in(Op::kX).shape[1],
                        .dtype = view.in(Op::kDy).dtype,
                        .accumulate = request.accumulate[Op::kDweight]},
                       [](Launch&, void* plan, std::byte* const* p) {
                         cpu::run_experts(plan_of<cpu::ExpertsPlan>(plan), p[0], i32(p[2]), i32(p[3]), p[1],
                                          p[4], p[5]);
                       });
}

// (ids, targets?) → counts
BoundKernel expert_counts(const BindRequest& request) {
  struct Plan {
    int64_t tokens, k, experts;
    bool accumulate;
  };
  return bound(
      [](Launch&, void* held, std::byte* const* p) {
        const auto& plan = plan_of<Plan>(held);
        cpu::expert_counts(plan.tokens, plan.k, plan.experts, reinterpret_cast<int64_t*>(p[2]), i32(p[0]),
                           i32(p[1]), plan.accumulate);
      },
      Plan{request.view.in(ops::ExpertCounts::kIds).shape[0],
           request.view.in(ops::ExpertCounts::kIds).shape[1], request.view.attrs<ops::ExpertsAttrs>().experts,
           request.accumulate[ops::ExpertCounts::kCounts]});
}

// (ids, rank) → ids
BoundKernel own_experts(const BindRequest& request) {
  struct Plan {
    ops::OwnExpertsAttrs attrs;
    int64_t slots;
  };
  return bound(
      [](Launch&, void* held, std::byte* const* p) {
        const auto& plan = plan_of<Plan>(held);
        auto* const own = reinterpret_cast<int32_t*>(p[2]);
        for (int64_t i = 0; i < plan.slots; ++i)
          own[i] = plan.attrs.own(i32(p[0])[i], graph::coordinates_in(p[1]));
      },
      Plan{request.view.attrs<ops::OwnExpertsAttrs>(),
           request.view.in(ops::OwnExperts::kIds).shape.elements()});
}

// (end) → rounds
BoundKernel expert_rounds(const BindRequest& request) {
  struct Plan {
    int64_t ranks;
    bool accumulate;
  };
  return bound(
      [](Launch&, void* held, std::byte* const* p) {
        const auto& plan = plan_of<Plan>(held);
        auto& rounds = *reinterpret_cast<int64_t*>(p[1]);
        if (!plan.accumulate) rounds = 0;
        for (int64_t rank = 0; rank < plan.ranks; ++rank) rounds += i32(p[0])[2 * rank + 1];
      },
      Plan{request.view.in(ops::ExpertRounds::kEnd).shape[0] / 2,
           request.accumulate[ops::ExpertRounds::kRounds]});
}

BoundKernel shared_experts(const BindRequest& request) {
  return bind_expert_rounds(request, cpu_bindings());
}

cpu::ExpertBiasShape bias_shape(const BindRequest& request, const graph::Value& rows, int offsets) {
  const int ids = ops::ExpertBias::kIds;
  return {.tokens = ops::tokens_of(request.view, ids, offsets),
          .slots = request.view.in(ids).shape.elements(),
          .experts = request.view.attrs<ops::ExpertsAttrs>().experts,
          .columns = rows.shape[1],
          .dtype = rows.dtype,
          .accumulate = request.accumulate[0]};
}

// (x, ids, weights?, b, offsets?) → y
BoundKernel expert_bias(const BindRequest& request) {
  return bound(
      [](Launch&, void* plan, std::byte* const* p) {
        cpu::add_expert_bias(plan_of<cpu::ExpertBiasShape>(plan), p[5], p[0], {i32(p[1]), i32(p[4])},
                             f32(p[2]), f32(p[3]));
      },
      bias_shape(request, request.view.in(ops::ExpertBias::kX), ops::ExpertBias::kOffsets));
}

// (dy, ids, weights?, offsets?) → db
BoundKernel expert_bias_grad(const BindRequest& request) {
  return bound(
      [](Launch&, void* plan, std::byte* const* p) {
        cpu::expert_bias_gradient(plan_of<cpu::ExpertBiasShape>(plan), f32(p[4]), p[0],
                                  {i32(p[1]), i32(p[3])}, f32(p[2]));
      },
      bias_shape(request, request.view.in(ops::ExpertBiasGrad::kDy), ops::ExpertBiasGrad::kOffsets));
}

// (dy, ids, b, offsets?) → dweights
BoundKernel expert_bias_grad_weights(const BindRequest& request) {
  return bound(
      [](Launch&, void* plan, std::byte* const* p) {
        cpu::expert_bias_weights_gradient(plan_of<cpu::ExpertBiasShape>(plan), f32(p[4]), p[0],
                                          {i32(p[1]), i32(p[3])}, f32(p[2]));
      },
      bias_shape(request, request.view.in(ops::ExpertBiasGradWeights::kDy),
                 ops::ExpertBiasGradWeights::kOffsets));
}

// (counts) → now
BoundKernel running_counts(const BindRequest& request) {
  return bound(
      [](Launch&, void* held, std::byte* const* p) {
        const auto* const counts = reinterpret_cast<const int64_t*>(p[0]);
        std::transform(counts, counts + plan_of<int64_t>(held), f32(p[1]),
                       [](int64_t count) { return static_cast<float>(count); });
      },
      request.view.in(ops::RunningCounts::kCounts).shape[0]);
}

}  // namespace

std::span<const Binding> experts_bindings() {
  static const Binding kTable[] = {
      {&ops::kExpertsIn, product<Role::kIn>},
      {&ops::kExpertsInGradInput, product<Role::kInGradInput>},
      {&ops::kExpertsInGradWeight, grad_weight<Role::kInGradWeight>},
      {&ops::kExpertsOut, product<Role::kOut>},
      {&ops::kExpertsOutGradInput, product<Role::kOutGradInput>},
      {&ops::kExpertsOutGradWeight, grad_weight<Role::kOutGradWeight>},
      {&ops::kExpertBias, expert_bias},
      {&ops::kExpertBiasGrad, expert_bias_grad},
      {&ops::kExpertBiasGradWeights, expert_bias_grad_weights},
      {&ops::kExpertCounts, expert_counts},
      {&ops::kOwnExperts, own_experts},
      {&ops::kExpertRounds, expert_rounds},
      {&ops::kExpertParallel, shared_experts},
      {&ops::kExpertParallelGradInput, shared_experts},
      {&ops::kExpertParallelGradWeight, shared_experts},
      {&ops::kRunningCounts, running_counts},
  };
  return kTable;
}

}  // namespace strata::device::cpu_bind
