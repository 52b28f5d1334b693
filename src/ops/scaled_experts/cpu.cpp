#include "kernels/cpu/scaled_experts.h"

#include "base/error.h"
#include "device/cpu/cpu.h"
#include "graph/placement.h"
#include "ops/scaled_experts/scaled_experts.h"

namespace strata::device {
namespace {

using cpu::ExpertsRole;

// Adds the common fields of all nodes to the spec; equal matmuls share a plan.
template <typename Op>
std::shared_ptr<const cpu::ScaledExpertsPlan> plan_of(const Bind<Op>& node, cpu::ScaledExpertsSpec spec) {
  const Shape& ids = node.in.ids->shape;
  cpu::ExpertsSpec& experts = spec.experts;
  experts.tokens = ops::tokens_of(node);
  experts.k = ids[1];
  experts.slots = node.in.offsets ? ids[0] : -1;
  experts.experts = node.attrs.experts;
  experts.dtype = node.attrs.out;
  const auto rule = [](const std::optional<quantize::ScaleRule>& along) {
    return along ? along->str() : std::string();
  };
  const std::string key =
      fmt::format("scaled_experts {} {} {} {} {} {} {} {} {} {}, {} {}, {}, {}, {} {}",
                  static_cast<int>(experts.role), experts.tokens, experts.k, experts.slots, experts.experts,
                  experts.outputs, experts.inputs, name_of(experts.dtype), experts.accumulate, spec.a.str(),
                  spec.b.str(), spec.b_along_columns, rule(spec.a_along_pairs), rule(spec.b_along_pairs),
                  spec.hadamard.has_value(), spec.stochastic ? int64_t{spec.stochastic->key.stream} : -1);
  auto& held = node.cache[key];
  if (!held)
    held = std::make_shared<const cpu::ScaledExpertsPlan>(cpu::plan_scaled_experts(spec, node.device));
  return std::static_pointer_cast<const cpu::ScaledExpertsPlan>(held);
}

// What all matmuls of codes have in common.
template <typename Op>
cpu::ScaledExpertsSpec spec_of(const Bind<Op>& node) {
  return {.experts = {}, .a = node.attrs.first.rule, .b = node.attrs.second.rule};
}

template <typename Op>
BoundKernel scaled_product(const Bind<Op>& node, ExpertsRole role) {
  const Shape& weight = node.in.weight->shape;
  cpu::ScaledExpertsSpec spec = spec_of(node);
  spec.experts = {.role = role, .outputs = weight[0] / node.attrs.experts, .inputs = weight[1]};
  const auto plan = plan_of(node, spec);
  return node.kernel(
      [plan](const Operands<Op>& at) {
        cpu::run_scaled_experts(*plan, {at.in.x, at.in.x_scales, at.in.x_greatest}, at.in.ids, at.in.offsets,
                                {at.in.weight, at.in.weight_scales, at.in.weight_greatest}, at.out.y,
                                at.scratch);
      },
      plan->scratch_bytes);
}

template <typename Op>
BoundKernel scaled_grad_input(const Bind<Op>& node, ExpertsRole role) {
  const Shape& weight = node.in.weight->shape;
  const bool along_columns = !node.attrs.second.across;
  cpu::ScaledExpertsSpec spec = spec_of(node);
  spec.b_along_columns = along_columns;
  spec.experts = {.role = role,
                  .outputs = weight[along_columns ? 1 : 0] / node.attrs.experts,
                  .inputs = weight[along_columns ? 0 : 1]};
  const auto plan = plan_of(node, spec);
  return node.kernel(
      [plan](const Operands<Op>& at) {
        cpu::run_scaled_experts(*plan, {at.in.dy, at.in.dy_scales, at.in.dy_greatest}, at.in.ids,
                                at.in.offsets, {at.in.weight, at.in.weight_scales, at.in.weight_greatest},
                                at.out.dx, at.scratch);
      },
      plan->scratch_bytes);
}

template <typename Op>
BoundKernel scaled_grad_weight(const Bind<Op>& node, ExpertsRole role) {
  cpu::ScaledExpertsSpec spec = spec_of(node);
  spec.a_along_pairs = node.attrs.first_along_pairs;
  spec.b_along_pairs = node.attrs.second_along_pairs;
  spec.experts = {.role = role,
                  .outputs = node.in.dy->shape[1],
                  .inputs = node.in.x->shape[1],
                  .accumulate = node.adds.dw};
  const ops::QuantizeAttrs& pairs = node.attrs.pair_rounding;
  std::vector<ops::HeldColumns> held;  // by rank of the axis that cuts dy's columns
  if (pairs.transforms_columns) spec.hadamard = ops::hadamard_signs();
  if (pairs.stochastic) {
    spec.stochastic = ops::stochastic_bits(pairs, true);
    for (int64_t rank = 0; rank < (pairs.columns ? pairs.columns->ranks : 1); ++rank)
      held.push_back(ops::held_columns(pairs, node.in.dy->shape[1], rank));
  }
  const auto plan = plan_of(node, spec);
  return node.kernel(
      [plan, held = std::move(held), axis = pairs.axis](const Operands<Op>& at) {
        cpu::RowPlaces places{.places = at.in.places};
        if (!held.empty()) {
          const auto rank = graph::place_in(at.in.rank, axis, static_cast<int64_t>(held.size()));
          places.runs = held[static_cast<size_t>(rank)].runs;
          places.pitch = held[static_cast<size_t>(rank)].all;
        }
        cpu::run_scaled_experts(*plan, {at.in.dy, at.in.dy_scales, at.in.dy_greatest}, at.in.ids,
                                at.in.offsets, {at.in.x, at.in.x_scales, at.in.x_greatest}, at.out.dw,
                                at.scratch, places);
      },
      plan->scratch_bytes);
}

}  // namespace

template <>
BoundKernel bind(Cpu, const Bind<ops::ScaledExpertsIn>& node) {
  return scaled_product(node, ExpertsRole::kIn);
}
template <>
BoundKernel bind(Cpu, const Bind<ops::ScaledExpertsInGradInput>& node) {
  return scaled_grad_input(node, ExpertsRole::kInGradInput);
}
template <>
BoundKernel bind(Cpu, const Bind<ops::ScaledExpertsInGradWeight>& node) {
  return scaled_grad_weight(node, ExpertsRole::kInGradWeight);
}
template <>
BoundKernel bind(Cpu, const Bind<ops::ScaledExpertsOut>& node) {
  return scaled_product(node, ExpertsRole::kOut);
}
template <>
BoundKernel bind(Cpu, const Bind<ops::ScaledExpertsOutGradInput>& node) {
  return scaled_grad_input(node, ExpertsRole::kOutGradInput);
}
template <>
BoundKernel bind(Cpu, const Bind<ops::ScaledExpertsOutGradWeight>& node) {
  return scaled_grad_weight(node, ExpertsRole::kOutGradWeight);
}

}  // namespace strata::device
