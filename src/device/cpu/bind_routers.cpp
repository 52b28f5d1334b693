// Routers that are no choice of experts by each token.
#include <algorithm>

#include "device/cpu/bind.h"
#include "kernels/cpu/expert_choice.h"
#include "kernels/cpu/jitter.h"
#include "kernels/cpu/soft_experts.h"
#include "kernels/cpu/two_level.h"
#include "ops/expert_choice.h"
#include "ops/jitter.h"
#include "ops/soft_experts.h"
#include "ops/two_level.h"

namespace strata::device::cpu_bind {
namespace {

using graph::NodeView;
using graph::Value;

cpu::ExpertChoiceShape choice_shape(const NodeView& view, const Value& logits) {
  const auto& attrs = view.attrs<ops::ExpertChoiceAttrs>();
  return {.groups = logits.shape[0] / attrs.rows,
          .rows = attrs.rows,
          .experts = logits.shape[1],
          .capacity = attrs.capacity,
          .score = attrs.score == ops::RouteAttrs::Score::kSigmoid ? cpu::RouterScore::kSigmoid
                                                                   : cpu::RouterScore::kSoftmax,
          .scale = static_cast<float>(attrs.scale)};
}

// (logits) → tokens, experts, weights
BoundKernel expert_choice(const BindRequest& request) {
  const auto shape = choice_shape(request.view, request.view.in(ops::ExpertChoice::kLogits));
  return bound(
      [](Launch&, void* plan, std::byte* const* p) {
        cpu::expert_choice(plan_of<cpu::ExpertChoiceShape>(plan), i32(p[1]), i32(p[2]), f32(p[3]), f32(p[0]),
                           p[4]);
      },
      shape, cpu::expert_choice_scratch_bytes(shape));
}

// (dweights, logits, tokens) → dlogits
BoundKernel expert_choice_grad(const BindRequest& request) {
  const auto shape = choice_shape(request.view, request.view.in(ops::ExpertChoiceGrad::kLogits));
  return bound(
      [](Launch&, void* plan, std::byte* const* p) {
        cpu::expert_choice_backward(plan_of<cpu::ExpertChoiceShape>(plan), f32(p[3]), f32(p[0]), f32(p[1]),
                                    i32(p[2]), p[4]);
      },
      shape, cpu::expert_choice_backward_scratch_bytes(shape));
}

cpu::GroupRowsShape rows_shape(const NodeView& view) {
  const auto& attrs = view.attrs<ops::GroupRowsAttrs>();
  const Value& x = view.in(ops::GroupRows::kX);
  return {.groups = view.in(ops::GroupRows::kTokens).shape[0] / attrs.slots,
          .rows = attrs.rows,
          .slots = attrs.slots,
          .columns = x.shape[1],
          .dtype = x.dtype};
}

// (x, tokens) → y
BoundKernel gather_rows(const BindRequest& request) {
  return bound(
      [](Launch&, void* plan, std::byte* const* p) {
        cpu::gather_rows(plan_of<cpu::GroupRowsShape>(plan), p[2], p[0], i32(p[1]));
      },
      rows_shape(request.view));
}

// (h, tokens) → y
BoundKernel scatter_rows(const BindRequest& request) {
  const auto shape = rows_shape(request.view);
  return bound(
      [](Launch&, void* plan, std::byte* const* p) {
        cpu::scatter_rows(plan_of<cpu::GroupRowsShape>(plan), p[2], p[0], i32(p[1]), p[3]);
      },
      shape, cpu::scatter_rows_scratch_bytes(shape));
}

cpu::SoftShape soft_shape(const NodeView& view, const Value& x, const Value& logits) {
  const auto& attrs = view.attrs<ops::SoftExpertsAttrs>();
  return {.groups = logits.shape[0] / attrs.rows,
          .rows = attrs.rows,
          .slots = logits.shape[1],
          .of_expert = logits.shape[1] / attrs.experts,
          .columns = x.shape[1],
          .dtype = x.dtype};
}

// (x, logits) → slots, experts, weights
BoundKernel soft_dispatch(const BindRequest& request) {
  using Op = ops::SoftDispatch;
  const auto shape = soft_shape(request.view, request.view.in(Op::kX), request.view.in(Op::kLogits));
  return bound(
      [](Launch&, void* plan, std::byte* const* p) {
        const auto& of = plan_of<cpu::SoftShape>(plan);
        cpu::soft_dispatch(of, p[2], i32(p[3]), p[0], f32(p[1]), p[5]);
        std::fill_n(f32(p[4]), of.groups * of.slots, 1.0f);
      },
      shape, cpu::soft_scratch_bytes(shape));
}

// (dslots, x, logits) → dx, dlogits
BoundKernel soft_dispatch_grad(const BindRequest& request) {
  using Op = ops::SoftDispatchGrad;
  const auto shape = soft_shape(request.view, request.view.in(Op::kX), request.view.in(Op::kLogits));
  return bound(
      [](Launch&, void* plan, std::byte* const* p) {
        cpu::soft_dispatch_backward(plan_of<cpu::SoftShape>(plan), p[3], f32(p[4]), p[0], p[1], f32(p[2]),
                                    p[5]);
      },
      shape, cpu::soft_scratch_bytes(shape));
}

// (h, logits) → y
BoundKernel soft_combine(const BindRequest& request) {
  using Op = ops::SoftCombine;
  const auto shape = soft_shape(request.view, request.view.in(Op::kH), request.view.in(Op::kLogits));
  return bound(
      [](Launch&, void* plan, std::byte* const* p) {
        cpu::soft_combine(plan_of<cpu::SoftShape>(plan), p[2], p[0], f32(p[1]), p[3]);
      },
      shape, cpu::soft_scratch_bytes(shape));
}

// (dy, h, logits) → dh, dlogits
BoundKernel soft_combine_grad(const BindRequest& request) {
  using Op = ops::SoftCombineGrad;
  const auto shape = soft_shape(request.view, request.view.in(Op::kH), request.view.in(Op::kLogits));
  return bound(
      [](Launch&, void* plan, std::byte* const* p) {
        cpu::soft_combine_backward(plan_of<cpu::SoftShape>(plan), p[3], f32(p[4]), p[0], p[1], f32(p[2]),
                                   p[5]);
      },
      shape, cpu::soft_scratch_bytes(shape));
}

cpu::TwoLevelShape levels_shape(const Value& groups, const Value& logits) {
  return {.tokens = logits.shape[0], .groups = groups.shape[1], .experts = logits.shape[1]};
}

// (groups, logits) → y
BoundKernel two_level_logits(const BindRequest& request) {
  using Op = ops::TwoLevelLogits;
  return bound(
      [](Launch&, void* plan, std::byte* const* p) {
        cpu::two_level_logits(plan_of<cpu::TwoLevelShape>(plan), f32(p[2]), f32(p[0]), f32(p[1]));
      },
      levels_shape(request.view.in(Op::kGroups), request.view.in(Op::kLogits)));
}

// (dy, groups, logits) → dgroups, dlogits
BoundKernel two_level_logits_grad(const BindRequest& request) {
  using Op = ops::TwoLevelLogitsGrad;
  return bound(
      [](Launch&, void* plan, std::byte* const* p) {
        cpu::two_level_logits_backward(plan_of<cpu::TwoLevelShape>(plan), f32(p[3]), f32(p[4]), f32(p[0]),
                                       f32(p[1]), f32(p[2]));
      },
      levels_shape(request.view.in(Op::kGroups), request.view.in(Op::kLogits)));
}

// (x, places) → y
BoundKernel jitter(const BindRequest& request) {
  const auto& attrs = request.view.attrs<ops::JitterAttrs>();
  const Value& x = request.view.in(ops::Jitter::kX);
  return bound(
      [](Launch&, void* plan, std::byte* const* p) {
        cpu::jitter(plan_of<cpu::JitterShape>(plan), f32(p[2]), f32(p[0]), i32(p[1]));
      },
      cpu::JitterShape{.rows = x.shape[0],
                       .columns = x.shape[1],
                       .eps = static_cast<float>(attrs.eps),
                       .stream = static_cast<uint32_t>(attrs.stream)});
}

// (samples) → places
BoundKernel sample_places(const BindRequest& request) {
  struct Plan {
    int64_t samples, rows;
  };
  return bound(
      [](Launch&, void* held, std::byte* const* p) {
        const auto& plan = plan_of<Plan>(held);
        cpu::sample_places(plan.samples, plan.rows, i32(p[1]), i32(p[0]));
      },
      Plan{request.view.in(ops::SamplePlaces::kSamples).shape[0],
           request.view.attrs<ops::SamplePlacesAttrs>().rows});
}

}  // namespace

std::span<const Binding> routers_bindings() {
  static const Binding kTable[] = {
      {&ops::kExpertChoice, expert_choice},
      {&ops::kExpertChoiceGrad, expert_choice_grad},
      {&ops::kGatherRows, gather_rows},
      {&ops::kScatterRows, scatter_rows},
      {&ops::kSoftDispatch, soft_dispatch},
      {&ops::kSoftDispatchGrad, soft_dispatch_grad},
      {&ops::kSoftCombine, soft_combine},
      {&ops::kSoftCombineGrad, soft_combine_grad},
      {&ops::kJitter, jitter},
      {&ops::kSamplePlaces, sample_places},
      {&ops::kTwoLevelLogits, two_level_logits},
      {&ops::kTwoLevelLogitsGrad, two_level_logits_grad},
  };
  return kTable;
}

}  // namespace strata::device::cpu_bind
