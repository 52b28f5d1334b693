#include "optim/cpu.h"

#include "kernels/cpu/adafactor.h"
#include "optim/adafactor/adafactor.h"

namespace strata::device {
namespace {

cpu::AdafactorConstants adafactor_constants(const optim::UpdateRule& rule) {
  const auto& adafactor = rule.optimizer.as<optim::Adafactor>();
  return {.beta2_decay = adafactor.beta2_decay,
          .eps1 = adafactor.eps1,
          .eps2 = adafactor.eps2,
          .clip_threshold = adafactor.clip_threshold,
          .weight_decay = rule.weight_decay,
          .lr_scale = rule.lr_scale};
}

// The rows of a tensor that a node is for.
struct AdafactorRows {
  AdafactorRows(const optim::AdafactorShardAttrs& attrs, const Shape& shape)
      : is_vector(shape.rank() == 1), constants(adafactor_constants(attrs.update.rule)) {
    const optim::UpdateElements own(attrs.update, shape);
    part = {own.rows, own.columns, attrs.rows};
    first = own.first;
  }
  int64_t scratch_bytes() const {
    return is_vector ? cpu::adafactor_scratch_bytes(1, part.rows)
                     : cpu::adafactor_scratch_bytes(part.rows, part.columns);
  }
  bool is_vector;
  cpu::AdafactorConstants constants;
  cpu::AdafactorPart part;
  int64_t first;  // element
};

}  // namespace

template <>
BoundKernel bind(Cpu, const Bind<optim::AdafactorUpdate>& node) {
  const optim::UpdateElements own(node.attrs, node.in.parameter->shape);
  return node.kernel(
      [own, constants = adafactor_constants(node.attrs.rule)](const Operands<optim::AdafactorUpdate>& at) {
        cpu::adafactor_update(own.rows, own.columns, at.out.parameter + own.first, at.out.row, at.out.column,
                              at.in.gradient + own.first, scalars_at(at.in.scalars), constants, at.scratch);
      },
      cpu::adafactor_scratch_bytes(own.rows, own.columns));
}

template <>
BoundKernel bind(Cpu, const Bind<optim::AdafactorVectorUpdate>& node) {
  const optim::UpdateElements own(node.attrs, node.in.parameter->shape);
  return node.kernel(
      [own,
       constants = adafactor_constants(node.attrs.rule)](const Operands<optim::AdafactorVectorUpdate>& at) {
        cpu::adafactor_vector_update(own.count, at.out.parameter + own.first, at.out.variance,
                                     at.in.gradient + own.first, scalars_at(at.in.scalars), constants,
                                     at.scratch);
      },
      cpu::adafactor_scratch_bytes(1, own.count));
}

template <>
BoundKernel bind(Cpu, const Bind<optim::AdafactorSums>& node) {
  const AdafactorRows own(node.attrs, node.in.parameter->shape);
  return node.kernel(
      [own](const Operands<optim::AdafactorSums>& at) {
        const float *const master = at.in.parameter + own.first, *const grad = at.in.gradient + own.first;
        const UpdateScalars* const scalars = scalars_at(at.in.scalars);
        if (own.is_vector) {
          cpu::adafactor_vector_sums(own.part.rows, master, at.out.state, grad, scalars, own.constants,
                                     at.out.sums, at.scratch);
        } else {
          cpu::adafactor_sums(own.part, master, at.out.state, grad, scalars, own.constants, at.out.sums,
                              at.scratch);
        }
      },
      own.scratch_bytes());
}

template <>
BoundKernel bind(Cpu, const Bind<optim::AdafactorColumns>& node) {
  const AdafactorRows own(node.attrs, node.in.gradient->shape);
  return node.kernel(
      [own](const Operands<optim::AdafactorColumns>& at) {
        cpu::adafactor_columns(own.part, at.in.row, at.out.column, at.in.gradient + own.first, at.in.sums,
                               scalars_at(at.in.scalars), own.constants, at.out.squares, at.scratch);
      },
      own.scratch_bytes());
}

template <>
BoundKernel bind(Cpu, const Bind<optim::AdafactorApply>& node) {
  return node.kernel(
      [own = AdafactorRows(node.attrs, node.in.parameter->shape)](const Operands<optim::AdafactorApply>& at) {
        float* const master = at.out.parameter + own.first;
        const float* const grad = at.in.gradient + own.first;
        const UpdateScalars* const scalars = scalars_at(at.in.scalars);
        if (own.is_vector) {
          cpu::adafactor_vector_apply(own.part.rows, own.part.of_rows, master, at.in.state, grad, at.in.sums,
                                      scalars, own.constants);
        } else {
          cpu::adafactor_apply(own.part, master, at.in.state, at.in.column, grad, at.in.sums, *at.in.squares,
                               scalars, own.constants);
        }
      });
}

}  // namespace strata::device
