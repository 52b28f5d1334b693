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

std::vector<PlacementOption> placements(const NodeView&, int) {
  return {{{kS0}, {kS0}}, {{kS1}, {kS1}}};
}
std::vector<PlacementOption> placements_grad(const NodeView&, int) {
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

}  // namespace

const OpDef kClamp{"clamp", "elementwise", infer, cost, placements, gradient, {{0, 0}}, recompute};
const OpDef kClampGrad{"clamp_grad",    "elementwise", infer_grad,      cost,
                       placements_grad, nullptr,       {{0, 0}, {0, 1}}};

ValueId clamp(Graph& graph, ValueId x, double limit) {
  return graph.add_node(kClamp, {x}, ClampAttrs{limit})[0];
}

}  // namespace strata::ops
