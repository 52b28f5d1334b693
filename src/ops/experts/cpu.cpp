#include "kernels/cpu/experts.h"

#include <algorithm>

#include "base/error.h"
#include "device/cpu/cpu.h"
#include "ops/experts/experts.h"

namespace strata::device {
namespace {

using cpu::ExpertsRole;

// Adds the common fields of all nodes to the spec; equal matmuls share a plan.
template <typename Op>
std::shared_ptr<const cpu::ExpertsPlan> experts_plan(const Bind<Op>& node, cpu::ExpertsSpec spec) {
  const Shape& ids = node.in.ids->shape;
  spec.tokens = ops::tokens_of(node);
  spec.k = ids[1];
  spec.slots = node.in.offsets ? ids[0] : -1;
  spec.experts = node.attrs.experts;
  const std::string key =
      fmt::format("experts {} {} {} {} {} {} {} {} {}", static_cast<int>(spec.role), spec.tokens, spec.k,
                  spec.slots, spec.experts, spec.outputs, spec.inputs, name_of(spec.dtype), spec.accumulate);
  auto& held = node.cache[key];
  if (!held) held = std::make_shared<const cpu::ExpertsPlan>(cpu::plan_experts(spec, node.device));
  return std::static_pointer_cast<const cpu::ExpertsPlan>(held);
}

// Matmul of `a`, of this dtype, by the weights.
template <typename Op, typename Run>
BoundKernel by_weights(const Bind<Op>& node, ExpertsRole role, DType dtype, const Run& run) {
  const Shape& weight = node.in.weight->shape;
  const auto plan = experts_plan(
      node, {.role = role, .outputs = weight[0] / node.attrs.experts, .inputs = weight[1], .dtype = dtype});
  return node.kernel([plan, run](const Operands<Op>& at) { run(*plan, at); }, plan->scratch_bytes);
}
template <typename Op>
BoundKernel experts_product(const Bind<Op>& node, ExpertsRole role) {
  return by_weights(node, role, node.in.x->dtype, [](const cpu::ExpertsPlan& plan, const Operands<Op>& at) {
    cpu::run_experts(plan, at.in.x, at.in.ids, at.in.offsets, at.in.weight, at.out.y, at.scratch);
  });
}
template <typename Op>
BoundKernel experts_grad_input(const Bind<Op>& node, ExpertsRole role) {
  return by_weights(node, role, node.in.dy->dtype, [](const cpu::ExpertsPlan& plan, const Operands<Op>& at) {
    cpu::run_experts(plan, at.in.dy, at.in.ids, at.in.offsets, at.in.weight, at.out.dx, at.scratch);
  });
}
template <typename Op>
BoundKernel experts_grad_weight(const Bind<Op>& node, ExpertsRole role) {
  const auto plan = experts_plan(node, {.role = role,
                                        .outputs = node.in.dy->shape[1],
                                        .inputs = node.in.x->shape[1],
                                        .dtype = node.in.dy->dtype,
                                        .accumulate = node.adds.dw});
  return node.kernel(
      [plan](const Operands<Op>& at) {
        cpu::run_experts(*plan, at.in.dy, at.in.ids, at.in.offsets, at.in.x, at.out.dw, at.scratch);
      },
      plan->scratch_bytes);
}

}  // namespace

template <>
BoundKernel bind(Cpu, const Bind<ops::ExpertsIn>& node) {
  return experts_product(node, ExpertsRole::kIn);
}
template <>
BoundKernel bind(Cpu, const Bind<ops::ExpertsInGradInput>& node) {
  return experts_grad_input(node, ExpertsRole::kInGradInput);
}
template <>
BoundKernel bind(Cpu, const Bind<ops::ExpertsInGradWeight>& node) {
  return experts_grad_weight(node, ExpertsRole::kInGradWeight);
}
template <>
BoundKernel bind(Cpu, const Bind<ops::ExpertsOut>& node) {
  return experts_product(node, ExpertsRole::kOut);
}
template <>
BoundKernel bind(Cpu, const Bind<ops::ExpertsOutGradInput>& node) {
  return experts_grad_input(node, ExpertsRole::kOutGradInput);
}
template <>
BoundKernel bind(Cpu, const Bind<ops::ExpertsOutGradWeight>& node) {
  return experts_grad_weight(node, ExpertsRole::kOutGradWeight);
}

template <>
BoundKernel bind(Cpu, const Bind<ops::ExpertCounts>& node) {
  const Shape& ids = node.in.ids->shape;
  return node.kernel([tokens = ids[0], k = ids[1], experts = node.attrs.experts,
                      adds = node.adds.counts](const Operands<ops::ExpertCounts>& at) {
    cpu::expert_counts(tokens, k, experts, at.out.counts, at.in.ids, at.in.targets, adds);
  });
}

template <>
BoundKernel bind(Cpu, const Bind<ops::RunningCounts>& node) {
  return node.kernel([experts = node.in.counts->shape[0]](const Operands<ops::RunningCounts>& at) {
    std::transform(at.in.counts, at.in.counts + experts, at.out.now,
                   [](int64_t count) { return static_cast<float>(count); });
  });
}

}  // namespace strata::device
