#include "kernels/cpu/recurrence_gates.h"

#include "device/cpu/cpu.h"
#include "ops/recurrence_gates/recurrence_gates.h"

namespace strata::device {
namespace {

cpu::RecurrenceGatesShape gates_shape(const graph::Value& a, const graph::Value& a_log,
                                      const ops::RecurrenceGatesAttrs& attrs) {
  return {.rows = a.shape[0],
          .heads = a_log.shape[0],
          .width = a.shape[1],
          .kind = attrs.kind,
          .beta_scale = static_cast<float>(attrs.beta_scale),
          .least = static_cast<float>(attrs.least),
          .greatest = static_cast<float>(attrs.greatest),
          .dtype = a.dtype};
}

}  // namespace

template <>
BoundKernel bind(Cpu, const Bind<ops::RecurrenceGates>& node) {
  const auto shape = gates_shape(*node.in.a, *node.in.a_log, node.attrs);
  return node.kernel(
      [shape](const Operands<ops::RecurrenceGates>& at) {
        cpu::recurrence_gates_forward(shape, at.out.g, at.out.beta, at.in.a, at.in.b,
                                      {at.in.a_log, at.in.dt_bias}, at.scratch);
      },
      cpu::recurrence_gates_scratch_bytes(shape));
}

template <>
BoundKernel bind(Cpu, const Bind<ops::RecurrenceGatesGradInput>& node) {
  const auto shape = gates_shape(*node.in.a, *node.in.a_log, node.attrs);
  return node.kernel(
      [shape](const Operands<ops::RecurrenceGatesGradInput>& at) {
        cpu::recurrence_gates_backward_input(shape, at.out.da, at.out.db, at.in.dg, at.in.dbeta, at.in.a,
                                             at.in.b, {at.in.a_log, at.in.dt_bias}, at.scratch);
      },
      cpu::recurrence_gates_scratch_bytes(shape));
}

template <>
BoundKernel bind(Cpu, const Bind<ops::RecurrenceGatesGradWeight>& node) {
  const auto shape = gates_shape(*node.in.a, *node.in.a_log, node.attrs);
  return node.kernel(
      [shape, adds = node.adds](const Operands<ops::RecurrenceGatesGradWeight>& at) {
        cpu::recurrence_gates_backward_weight(shape, at.out.da_log, at.out.ddt_bias, at.in.dg, at.in.dbeta,
                                              at.in.a, {at.in.a_log, at.in.dt_bias}, adds.da_log,
                                              adds.ddt_bias, at.scratch);
      },
      cpu::recurrence_gates_weight_scratch_bytes(shape));
}

}  // namespace strata::device
