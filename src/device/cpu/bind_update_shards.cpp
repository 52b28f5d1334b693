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

// --- Adafactor

struct TensorPlan {
  TensorPlan(const BindRequest& request, int like) {
    const auto& attrs = request.view.attrs<optim::AdafactorShardAttrs>();
    const Shape& shape = request.view.in(like).shape;
    const RowsPlan rows(attrs.update, shape);
    is_vector = shape.rank() == 1;
    part = {rows.rows, rows.columns, attrs.rows};
    first = rows.first;
    constants = adafactor_constants(attrs.update.rule);
  }
  int64_t scratch_bytes() const {
    return is_vector ? cpu::adafactor_scratch_bytes(1, part.rows)
                     : cpu::adafactor_scratch_bytes(part.rows, part.columns);
  }
  bool is_vector = false;
  cpu::AdafactorPart part;
  int64_t first = 0;  // element
  cpu::AdafactorConstants constants;
};

double* f64(std::byte* pointer) {
  return reinterpret_cast<double*>(pointer);
}

// (master, row or variance, grad, scalars) → row or variance, sums
BoundKernel adafactor_sums(const BindRequest& request) {
  using Op = optim::AdafactorSumsOperands;
  const TensorPlan plan(request, Op::kParameter);
  constexpr int kBehind = Op::kScalars + 1;
  return bound(
      [](Launch&, void* held, std::byte* const* p) {
        const auto& at = plan_of<TensorPlan>(held);
        const float* const master = f32(p[Op::kParameter]) + at.first;
        const float* const grad = f32(p[Op::kGradient]) + at.first;
        double* const sums = f64(p[kBehind + Op::kSums]);
        std::byte* const scratch = p[kBehind + Op::kSums + 1];
        if (at.is_vector) {
          cpu::adafactor_vector_sums(at.part.rows, master, f32(p[Op::kState]), grad,
                                     scalars_at(p[Op::kScalars]), at.constants, sums, scratch);
        } else {
          cpu::adafactor_sums(at.part, master, f32(p[Op::kState]), grad, scalars_at(p[Op::kScalars]),
                              at.constants, sums, scratch);
        }
      },
      plan, plan.scratch_bytes());
}

// (row, column, grad, sums, scalars) → column, squares
BoundKernel adafactor_columns(const BindRequest& request) {
  using Op = optim::AdafactorColumnsOperands;
  const TensorPlan plan(request, Op::kGradient);
  constexpr int kBehind = Op::kScalars + 1;
  return bound(
      [](Launch&, void* held, std::byte* const* p) {
        const auto& at = plan_of<TensorPlan>(held);
        cpu::adafactor_columns(at.part, f32(p[Op::kRow]), f32(p[Op::kColumn]),
                               f32(p[Op::kGradient]) + at.first, f64(p[Op::kSums]),
                               scalars_at(p[Op::kScalars]), at.constants, f64(p[kBehind + Op::kSquares]),
                               p[kBehind + Op::kSquares + 1]);
      },
      plan, plan.scratch_bytes());
}

// (master, row or variance, column?, grad, sums, squares?, scalars) → master
BoundKernel adafactor_apply(const BindRequest& request) {
  using Op = optim::AdafactorApplyOperands;
  return bound(
      [](Launch&, void* held, std::byte* const* p) {
        const auto& at = plan_of<TensorPlan>(held);
        float* const master = f32(p[Op::kParameter]) + at.first;
        const float* const grad = f32(p[Op::kGradient]) + at.first;
        const double* const sums = f64(p[Op::kSums]);
        if (at.is_vector) {
          cpu::adafactor_vector_apply(at.part.rows, at.part.of_rows, master, f32(p[Op::kState]), grad, sums,
                                      scalars_at(p[Op::kScalars]), at.constants);
        } else {
          cpu::adafactor_apply(at.part, master, f32(p[Op::kState]), f32(p[Op::kColumn]), grad, sums,
                               *f64(p[Op::kSquares]), scalars_at(p[Op::kScalars]), at.constants);
        }
      },
      TensorPlan(request, Op::kParameter));
}

}  // namespace

std::span<const Binding> update_shard_bindings() {
  static const Binding kTable[] = {
      {&optim::kMuonMomentum, muon_momentum},
      {&optim::kNewtonSchulz, newton_schulz},
      {&optim::kMuonApply, muon_apply},
      {&optim::kAdafactorSums, adafactor_sums},
      {&optim::kAdafactorColumns, adafactor_columns},
      {&optim::kAdafactorApply, adafactor_apply},
  };
  return kTable;
}

}  // namespace strata::device::cpu_bind
