#include "ops/ops.h"
#include "ops/rules.h"

namespace strata::ops {
namespace {

std::vector<ValueSpec> infer_gated(const NodeView& view) {
  const Value& gate_up = view.in(Gated::kGateUp);
  require(view, gate_up.shape.rank() == 2 && gate_up.shape[1] % 2 == 0, "the input must be [N, gate | up]");
  return {{"y", gate_up.dtype, {gate_up.shape[0], gate_up.shape[1] / 2}}};
}

std::vector<PlacementOption> placements_unary(const NodeView&, Axis) {
  return {{{kS0}, {kS0}}, {{kS1}, {kS1}}};
}
std::vector<PlacementOption> placements_binary(const NodeView&, Axis) {
  return {{{kS0, kS0}, {kS0}}, {{kS1, kS1}, {kS1}}};
}

Cost cost_unary(const NodeView& view) {
  return streamed(view, 8);
}

// (dy, x) → dx with x's shape.
std::vector<ValueSpec> infer_grad(const NodeView& view) {
  return {{"dx", view.in(ActivationGrad::kX).dtype, view.in(ActivationGrad::kX).shape,
           view.in(ActivationGrad::kX).segments}};
}

std::vector<ValueSpec> infer_same(const NodeView& view) {
  return {
      {"y", view.in(Activation::kX).dtype, view.in(Activation::kX).shape, view.in(Activation::kX).segments}};
}

template <const OpDef* kGrad>
void gradient(GradientBuilder& builder, const Node& node) {
  const ValueId dy = builder.gradient_of(node.outputs[Activation::kY]);
  builder.add_gradient(node.inputs[Activation::kX],
                       builder.graph().add_node(*kGrad, {dy, node.inputs[Activation::kX]}, node.attrs)[0]);
}

// Cheap: a node of the same op on the same input.
ValueId recompute(Graph& graph, const Node& node, int output) {
  return output == 0 ? graph.add_node(*node.op, node.inputs, node.attrs)[0] : kNone;
}

}  // namespace

const OpDef kGated{"gated",          "elementwise",         infer_gated, cost_unary,
                   placements_unary, gradient<&kGatedGrad>, {},          recompute};
const OpDef kGatedGrad{"gated_grad",      "elementwise", infer_grad, cost_unary,
                       placements_binary, nullptr,       {{0, 1}}};
const OpDef kActivation{"activation", "elementwise",    infer_same,
                        cost_unary,   placements_unary, gradient<&kActivationGrad>,
                        {},           recompute};
const OpDef kActivationGrad{"activation_grad", "elementwise", infer_grad,      cost_unary,
                            placements_binary, nullptr,       {{0, 1}, {0, 0}}};

ValueId gated(Graph& graph, ValueId gate_up, ActivationKind kind) {
  return graph.add_node(kGated, {gate_up}, ActivationAttrs{kind})[0];
}
ValueId activation(Graph& graph, ValueId x, ActivationKind kind) {
  return graph.add_node(kActivation, {x}, ActivationAttrs{kind})[0];
}

}  // namespace strata::ops
