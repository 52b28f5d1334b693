// Updates of parameters in shards that ranks make together.
#include <algorithm>

#include "device/cpu/bind_update.h"

namespace strata::device::cpu_bind {
namespace {

// --- Muon

// What a rank has of the matrices of a stack.
struct StackPlan {
  StackPlan(const graph::NodeView& view, int (*like)(int operand), int operands) : count(operands) {
    for (const auto& slot : view.attrs<optim::MuonStackAttrs>().slots) {
      if (slot.operand < 0) {
        slots.push_back({});
        continue;
      }
      const auto operand = static_cast<int>(slot.operand);
      const RowsPlan rows(slot.update, view.in(like(operand)).shape);
      const auto& muon = std::get<optim::Muon>(slot.update.rule.optimizer);
      elements = rows.elements;
      slots.push_back({operand,
                       rows.first,
                       rows.state_first,
                       {.momentum = muon.momentum,
                        .nesterov = muon.nesterov,
                        .steps = muon.steps,
                        .weight_decay = rows.weight_decay,
                        .lr_scale = rows.lr_scale}});
    }
  }
  struct Slot {
    int operand = -1;
    int64_t first = 0, state_first = 0;  // elements
    cpu::MuonConstants constants = {};
  };
  std::vector<Slot> slots;
  int count = 0;         // of operands that slots number
  int64_t elements = 0;  // of a slot
};

// (momentum, gradient, …, scalars) → momentum…, stack
BoundKernel muon_momentum(const BindRequest& request) {
  using Op = optim::MuonMomentumOperands;
  const int count = static_cast<int>(request.view.node.outputs.size()) - 1;
  return bound(
      [](Launch&, void* held, std::byte* const* p) {
        const auto& plan = plan_of<StackPlan>(held);
        const int behind = Op::kEach * plan.count;
        const UpdateScalars* const scalars = scalars_at(p[behind]);
        float* stack = f32(p[behind + Op::kBehind + plan.count]);
        for (const auto& slot : plan.slots) {
          if (slot.operand < 0 || scalars->skip != 0) {
            std::fill_n(stack, plan.elements, 0.0f);
          } else {
            cpu::muon_momentum(plan.elements, f32(p[Op::momentum(slot.operand)]) + slot.state_first,
                               f32(p[Op::gradient(slot.operand)]) + slot.first, stack, scalars,
                               slot.constants);
          }
          stack += plan.elements;
        }
      },
      StackPlan(request.view, Op::gradient, count));
}

struct ProductsNode {
  int64_t matrices, elements, steps;
  std::shared_ptr<const cpu::MuonPlan> products;  // shared by equal shapes
};

struct ProductsInstance {
  explicit ProductsInstance(const ProductsNode& plan) : node(plan), muon(*plan.products) {}
  ProductsNode node;
  cpu::Muon muon;
};

// (stack) → stack
BoundKernel newton_schulz(const BindRequest& request) {
  using Op = optim::NewtonSchulzOperands;
  const Shape& x = request.view.in(Op::kX).shape;
  ProductsNode plan{x[0], x[1] * x[2], request.view.attrs<optim::NewtonSchulzAttrs>().steps,
                    muon_products(request, x[1], x[2])};
  BoundKernel kernel = bound(
      [](Launch&, void* held, std::byte* const* p) {
        auto& [node, muon] = instance_of<ProductsInstance>(held);
        for (int64_t i = 0; i < node.matrices; ++i) {
          muon.newton_schulz(f32(p[Op::kX]) + i * node.elements, f32(p[1 + Op::kY]) + i * node.elements,
                             node.steps, p[2]);
        }
      },
      plan, plan.products->scratch_bytes);
  kernel.instantiate = instantiate<ProductsInstance, ProductsNode>;
  return kernel;
}

// (master…, stack, scalars) → master…
BoundKernel muon_apply(const BindRequest& request) {
  using Op = optim::MuonApplyOperands;
  const auto count = static_cast<int>(request.view.node.outputs.size());
  return bound(
      [](Launch&, void* held, std::byte* const* p) {
        const auto& plan = plan_of<StackPlan>(held);
        const UpdateScalars* const scalars = scalars_at(p[plan.count + 1]);
        if (scalars->skip != 0) return;
        const float* stack = f32(p[plan.count]);
        for (const auto& slot : plan.slots) {
          if (slot.operand >= 0) {
            cpu::muon_apply(plan.elements, f32(p[Op::parameter(slot.operand)]) + slot.first, stack, scalars,
                            slot.constants);
          }
          stack += plan.elements;
        }
      },
      StackPlan(request.view, Op::parameter, count));
}

}  // namespace

std::span<const Binding> update_shard_bindings() {
  static const Binding kTable[] = {
      {&optim::kMuonMomentum, muon_momentum},
      {&optim::kNewtonSchulz, newton_schulz},
      {&optim::kMuonApply, muon_apply},
  };
  return kTable;
}

}  // namespace strata::device::cpu_bind
