#include "ops/clamp.h"

#include "ops/rules.h"

namespace strata::ops {

using graph::OpDef;

namespace {

std::vector<ValueSpec> infer(const NodeView& view) {
  return {{"y", view.in(Clamp::kX).dtype, view.in(Clamp::kX).shape, view.in(Clamp::kX).segments}};
}
std::vector<ValueSpec> infer_grad(const NodeView& view) {
  require(view, view.in(ClampGrad::kDy).shape == view.in(ClampGrad::kX).shape,
          "gradient and input must have one shape");
  return {
      {"dx", view.in(ClampGrad::kX).dtype, view.in(ClampGrad::kX).shape, view.in(ClampGrad::kX).segments}};
}

Cost cost(const NodeView& view) {
  return streamed(view, 2);
}

std::vector<PlacementOption> placements(const NodeView&, Axis) {
  return {{{kS0}, {kS0}}, {{kS1}, {kS1}}};
}
std::vector<PlacementOption> placements_grad(const NodeView&, Axis) {
  return {{{kS0, kS0}, {kS0}}, {{kS1, kS1}, {kS1}}};
}

void gradient(GradientBuilder& builder, const Node& node) {
  const ValueId dy = builder.gradient_of(node.outputs[Clamp::kY]);
  builder.add_gradient(node.inputs[Clamp::kX],
                       builder.graph().add_node(kClampGrad, {dy, node.inputs[Clamp::kX]}, node.attrs)[0]);
}

ValueId recompute(Graph& graph, const Node& node, int output) {
  return output == 0 ? graph.add_node(*node.op, node.inputs, node.attrs)[0] : kNone;
}

// --- clamped_gated

Cost cost_gated(const NodeView& view) {
  return streamed(view, 8);
}
std::vector<ValueSpec> infer_gated(const NodeView& view) {
  const Value& gate_up = view.in(ClampedGated::kGateUp);
  require(view, gate_up.shape.rank() == 2 && gate_up.shape[1] % 2 == 0, "the input must be [N, gate | up]");
  return {{"y", gate_up.dtype, {gate_up.shape[0], gate_up.shape[1] / 2}}};
}
std::vector<ValueSpec> infer_gated_grad(const NodeView& view) {
  const Value &dy = view.in(ClampedGatedGrad::kDy), &gate_up = view.in(ClampedGatedGrad::kGateUp);
  require(view, gate_up.shape == Shape({dy.shape[0], 2 * dy.shape[1]}),
          "the gradient must be half as wide as the input");
  return {{"d_gate_up", gate_up.dtype, gate_up.shape, gate_up.segments}};
}
void gradient_gated(GradientBuilder& builder, const Node& node) {
  const ValueId dy = builder.gradient_of(node.outputs[ClampedGated::kY]),
                gate_up = node.inputs[ClampedGated::kGateUp];
  builder.add_gradient(gate_up, builder.graph().add_node(kClampedGatedGrad, {dy, gate_up}, node.attrs)[0]);
}

}  // namespace

const OpDef kClamp{"clamp", "elementwise", infer, cost, placements, gradient, {{0, 0}}, recompute};
const OpDef kClampGrad{"clamp_grad",    "elementwise", infer_grad,      cost,
                       placements_grad, nullptr,       {{0, 0}, {0, 1}}};

const OpDef kClampedGated{"clamped_gated", "elementwise",  infer_gated, cost_gated,
                          placements,      gradient_gated, {},          recompute};
const OpDef kClampedGatedGrad{"clamped_gated_grad", "elementwise", infer_gated_grad, cost_gated,
                              placements_grad,      nullptr,       {{0, 1}}};

ValueId clamped_gated(Graph& graph, ValueId gate_up, const ClampedGatedAttrs& attrs) {
  return graph.add_node(kClampedGated, {gate_up}, attrs)[0];
}
ValueId clamp(Graph& graph, ValueId x, double limit) {
  return graph.add_node(kClamp, {x}, ClampAttrs{limit})[0];
}

}  // namespace strata::ops
