#include "optim/muon/muon.h"

#include <algorithm>

#include "base/error.h"
#include "kernels/cpu/muon.h"
#include "optim/cpu.h"

namespace strata::device {
namespace {

cpu::MuonConstants muon_constants(const optim::UpdateRule& rule) {
  const auto& muon = rule.optimizer.as<optim::Muon>();
  return {.momentum = muon.momentum,
          .nesterov = muon.nesterov,
          .steps = muon.steps,
          .weight_decay = rule.weight_decay,
          .lr_scale = rule.lr_scale};
}

// The GEMMs for matrices of one shape, made once.
template <typename Op>
std::shared_ptr<const cpu::MuonPlan> muon_gemms(const Bind<Op>& node, int64_t rows, int64_t columns) {
  auto& products = node.cache[fmt::format("muon {} {}", rows, columns)];
  if (!products) products = std::make_shared<const cpu::MuonPlan>(cpu::plan_muon(rows, columns, node.device));
  return std::static_pointer_cast<const cpu::MuonPlan>(products);
}

// The rows of a stack's matrices on a rank. `of`: the values that `operand` indexes.
struct StackPlan {
  StackPlan(const optim::MuonStackAttrs& attrs, const std::vector<graph::Ref>& of) {
    for (const auto& slot : attrs.slots) {
      Slot& own = slots.emplace_back();
      if (slot.operand < 0) continue;
      own.operand = static_cast<size_t>(slot.operand);
      own.at = optim::UpdateElements(slot.update, of[own.operand]->shape);
      own.constants = muon_constants(slot.update.rule);
      elements = own.at.count;
    }
  }
  struct Slot {
    size_t operand = 0;
    optim::UpdateElements at = {};  // of no elements: no matrix here
    cpu::MuonConstants constants = {};
  };
  std::vector<Slot> slots;
  int64_t elements = 0;  // of a matrix
};

}  // namespace

template <>
BoundKernel bind(Cpu, const Bind<optim::MuonUpdate>& node) {
  const optim::UpdateElements own(node.attrs, node.in.parameter->shape);
  const auto products = muon_gemms(node, own.rows, own.columns);
  return node.kernel_with<cpu::Muon>(
      products,
      [own, constants = muon_constants(node.attrs.rule)](cpu::Muon& muon,
                                                         const Operands<optim::MuonUpdate>& at) {
        muon.update(at.out.parameter + own.first, at.out.momentum + own.state_first,
                    at.in.gradient + own.first, scalars_at(at.in.scalars), constants, at.scratch);
      },
      products->scratch_bytes);
}

template <>
BoundKernel bind(Cpu, const Bind<optim::MuonMomentum>& node) {
  return node.kernel(
      [plan = StackPlan(node.attrs, node.in.gradients)](const Operands<optim::MuonMomentum>& at) {
        const UpdateScalars* const scalars = scalars_at(at.in.scalars);
        float* stack = at.out.stack;
        for (const auto& slot : plan.slots) {
          if (slot.at.count == 0 || scalars->skip != 0) {
            std::fill_n(stack, plan.elements, 0.0f);
          } else {
            cpu::muon_momentum(plan.elements, at.out.momenta[slot.operand] + slot.at.state_first,
                               at.in.gradients[slot.operand] + slot.at.first, stack, scalars, slot.constants);
          }
          stack += plan.elements;
        }
      });
}

template <>
BoundKernel bind(Cpu, const Bind<optim::NewtonSchulz>& node) {
  const Shape& x = node.in.x->shape;
  const auto products = muon_gemms(node, x[1], x[2]);
  return node.kernel_with<cpu::Muon>(
      products,
      [matrices = x[0], elements = x[1] * x[2], steps = node.attrs.steps](
          cpu::Muon& muon, const Operands<optim::NewtonSchulz>& at) {
        for (int64_t i = 0; i < matrices; ++i)
          muon.newton_schulz(at.in.x + i * elements, at.out.orthogonal + i * elements, steps, at.scratch);
      },
      products->scratch_bytes);
}

template <>
BoundKernel bind(Cpu, const Bind<optim::MuonApply>& node) {
  return node.kernel(
      [plan = StackPlan(node.attrs, node.in.parameters)](const Operands<optim::MuonApply>& at) {
        const UpdateScalars* const scalars = scalars_at(at.in.scalars);
        if (scalars->skip != 0) return;
        const float* stack = at.in.stack;
        for (const auto& slot : plan.slots) {
          if (slot.at.count > 0)
            cpu::muon_apply(plan.elements, at.out.parameters[slot.operand] + slot.at.first, stack, scalars,
                            slot.constants);
          stack += plan.elements;
        }
      });
}

}  // namespace strata::device
