#include "kernels/cpu/expert_choice.h"

#include "device/cpu/cpu.h"
#include "ops/expert_choice/expert_choice.h"

namespace strata::device {
namespace {

template <typename Op>
cpu::ExpertChoiceShape choice_shape(const Bind<Op>& node) {
  const Shape& logits = node.in.logits->shape;
  return {.groups = logits[0] / node.attrs.rows,
          .rows = node.attrs.rows,
          .experts = logits[1],
          .capacity = node.attrs.capacity,
          .score = node.attrs.score == ops::RouteAttrs::Score::kSigmoid ? cpu::RouterScore::kSigmoid
                                                                        : cpu::RouterScore::kSoftmax,
          .scale = static_cast<float>(node.attrs.scale)};
}

template <typename Op>
cpu::GroupRowsShape group_rows_shape(const Bind<Op>& node) {
  const graph::Value& x = *node.in.x;
  return {.groups = node.in.tokens->shape[0] / node.attrs.slots,
          .rows = node.attrs.rows,
          .slots = node.attrs.slots,
          .columns = x.shape[1],
          .dtype = x.dtype};
}

}  // namespace

template <>
BoundKernel bind(Cpu, const Bind<ops::ExpertChoice>& node) {
  const cpu::ExpertChoiceShape shape = choice_shape(node);
  return node.kernel(
      [shape](const Operands<ops::ExpertChoice>& at) {
        cpu::expert_choice(shape, at.out.tokens, at.out.experts, at.out.weights, at.in.logits, at.scratch);
      },
      cpu::expert_choice_scratch_bytes(shape));
}

template <>
BoundKernel bind(Cpu, const Bind<ops::ExpertChoiceGrad>& node) {
  const cpu::ExpertChoiceShape shape = choice_shape(node);
  return node.kernel(
      [shape](const Operands<ops::ExpertChoiceGrad>& at) {
        cpu::expert_choice_backward(shape, at.out.dlogits, at.in.dweights, at.in.logits, at.in.tokens,
                                    at.scratch);
      },
      cpu::expert_choice_backward_scratch_bytes(shape));
}

template <>
BoundKernel bind(Cpu, const Bind<ops::GatherRows>& node) {
  return node.kernel([shape = group_rows_shape(node)](const Operands<ops::GatherRows>& at) {
    cpu::gather_rows(shape, at.out.y, at.in.x, at.in.tokens);
  });
}

template <>
BoundKernel bind(Cpu, const Bind<ops::ScatterRows>& node) {
  const cpu::GroupRowsShape shape = group_rows_shape(node);
  return node.kernel(
      [shape](const Operands<ops::ScatterRows>& at) {
        cpu::scatter_rows(shape, at.out.y, at.in.x, at.in.tokens, at.scratch);
      },
      cpu::scatter_rows_scratch_bytes(shape));
}

}  // namespace strata::device
