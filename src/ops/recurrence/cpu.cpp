#include "device/cpu/cpu.h"

#include "kernels/cpu/recurrence.h"
#include "ops/recurrence/recurrence.h"
#include "ops/recurrence/sizes.h"

namespace strata::device {
namespace {

template <typename Op>
cpu::RecurrenceShape recurrence_shape(const Bind<Op>& node, int64_t ranges_of_sequence) {
  const graph::Value& mixed = *node.in.mixed;
  const ops::RecurrenceAttrs& attrs = node.attrs;
  const ops::RecurrenceHeads heads(attrs, mixed.segments);
  const int64_t rows = attrs.sequence_length / ranges_of_sequence;
  cpu::RecurrenceShape shape{.ranges = mixed.shape[0] / rows,
                             .rows = rows,
                             .key_heads = heads.key_heads,
                             .value_heads = heads.value_heads,
                             .key_dim = heads.key_dim,
                             .value_dim = heads.value_dim,
                             .width = mixed.shape[1],
                             .q_first = heads.q,
                             .k_first = heads.k,
                             .v_first = heads.v,
                             .delta = attrs.kind == RecurrenceKind::kDelta,
                             .l2_norm = attrs.l2_norm,
                             .scale = static_cast<float>(attrs.scale),
                             .chunk = attrs.chunk,
                             .dtype = mixed.dtype};
  if constexpr (requires { node.in.g; }) shape.by_channel = node.in.g->shape[1] != heads.value_heads;
  return shape;
}
template <typename Op>
cpu::RecurrencePlan recurrence_plan(const Bind<Op>& node, int64_t ranges_of_sequence) {
  return cpu::plan_recurrence(recurrence_shape(node, ranges_of_sequence), node.device);
}

template <typename Op>
cpu::RecurrenceInputs recurrence_inputs(const Operands<Op>& at) {
  cpu::RecurrenceInputs in{.mixed = at.in.mixed, .g = at.in.g, .beta = at.in.beta};
  if constexpr (requires { at.in.skip; }) in.skip = at.in.skip;
  if constexpr (requires { at.in.positions; }) in.positions = at.in.positions;
  if constexpr (requires { at.in.before; }) in.before = at.in.before;
  return in;
}

template <typename Op>
cpu::RecurrenceMaps recurrence_maps(const Bind<Op>& node) {
  const ops::RecurrenceAttrs& attrs = node.attrs;
  const Shape& map = node.in.map->shape;
  return {.sequences = map[0] / attrs.pieces,
          .ranges = attrs.pieces,
          .heads = map[1] / ops::map_width(attrs),
          .key_dim = attrs.key_dim,
          .value_dim = attrs.value_dim,
          .delta = attrs.kind == RecurrenceKind::kDelta};
}

}  // namespace

template <>
BoundKernel bind(Cpu, const Bind<ops::Recurrence>& node) {
  const cpu::RecurrencePlan plan = recurrence_plan(node, node.attrs.pieces);
  return node.kernel(
      [plan](const Operands<ops::Recurrence>& at) {
        cpu::recurrence_forward(plan, at.out.o, recurrence_inputs(at), at.scratch);
      },
      plan.forward_bytes);
}

template <>
BoundKernel bind(Cpu, const Bind<ops::RecurrenceGrad>& node) {
  const cpu::RecurrencePlan plan = recurrence_plan(node, node.attrs.pieces);
  return node.kernel(
      [plan](const Operands<ops::RecurrenceGrad>& at) {
        cpu::recurrence_backward(
            plan,
            {.dmixed = at.out.dmixed, .dg = at.out.dg, .dbeta = at.out.dbeta, .dbefore = at.out.dbefore},
            at.in.dout, at.in.dlast, recurrence_inputs(at), at.scratch);
      },
      plan.backward_bytes);
}

template <>
BoundKernel bind(Cpu, const Bind<ops::RecurrenceSkipGrad>& node) {
  return node.kernel([shape = recurrence_shape(node, node.attrs.pieces),
                      adds = node.adds.dskip](const Operands<ops::RecurrenceSkipGrad>& at) {
    cpu::recurrence_skip_gradient(shape, at.out.dskip, at.in.dout, at.in.mixed, adds);
  });
}

template <>
BoundKernel bind(Cpu, const Bind<ops::RecurrenceMap>& node) {
  const cpu::RecurrencePlan plan = recurrence_plan(node, node.attrs.pieces);
  return node.kernel(
      [plan](const Operands<ops::RecurrenceMap>& at) {
        cpu::recurrence_map(plan, at.out.map, recurrence_inputs(at), at.scratch);
      },
      plan.map_bytes);
}

template <>
BoundKernel bind(Cpu, const Bind<ops::RecurrenceStateGrad>& node) {
  const cpu::RecurrencePlan plan = recurrence_plan(node, node.attrs.pieces);
  return node.kernel(
      [plan](const Operands<ops::RecurrenceStateGrad>& at) {
        cpu::recurrence_state_gradient(plan, at.out.dbefore, at.in.dout, recurrence_inputs(at), at.scratch);
      },
      plan.state_grad_bytes);
}

template <>
BoundKernel bind(Cpu, const Bind<ops::ComposeMaps>& node) {
  return node.kernel([shape = recurrence_maps(node)](const Operands<ops::ComposeMaps>& at) {
    cpu::compose_maps(shape, at.out.before, at.in.map);
  });
}

template <>
BoundKernel bind(Cpu, const Bind<ops::ComposeStateGrads>& node) {
  return node.kernel([shape = recurrence_maps(node)](const Operands<ops::ComposeStateGrads>& at) {
    cpu::compose_state_gradients(shape, at.out.dlast, at.in.map, at.in.dbefore);
  });
}

template <>
BoundKernel bind(Cpu, const Bind<ops::CachedRecurrence>& node) {
  const cpu::RecurrencePlan plan = recurrence_plan(node, 1);
  return node.kernel(
      [plan](const Operands<ops::CachedRecurrence>& at) {
        cpu::recurrence_cached(
            plan, at.out.o,
            {.states = at.out.cache, .position = at.in.position, .slot = at.in.slot, .count = at.in.count},
            recurrence_inputs(at), at.scratch);
      },
      plan.forward_bytes);
}

}  // namespace strata::device
