#include "ops/experts.h"
#include "ops/rules.h"

namespace strata::ops {

using graph::OpDef;

namespace {

int64_t experts_of(const NodeView& view) {
  return view.attrs<ExpertsAttrs>().experts;
}

// `rows`: what has a row a slot, or with weights a row a token.
void require_rows(const NodeView& view, const Value& rows, int ids, int weights) {
  const Value& of = view.in(ids);
  require(view, of.dtype == DType::kI32 && of.shape.rank() == 2, "ids must be i32[N, k]");
  const bool weighted = weights >= 0 && view.has(weights);
  require(view, rows.shape.rank() == 2 && rows.shape[0] == (weighted ? of.shape[0] : of.shape.elements()),
          "there must be a row a slot, or with weights a row a token");
  if (weighted) {
    require(view, view.in(weights).dtype == DType::kF32 && view.in(weights).shape == of.shape,
            "weights must be f32[N, k]");
  }
}

std::vector<ValueSpec> infer(const NodeView& view) {
  const Value& x = view.in(ExpertBias::kX);
  require_rows(view, x, ExpertBias::kIds, ExpertBias::kWeights);
  require(view, view.in(ExpertBias::kBias).shape == Shape{experts_of(view) * x.shape[1]},
          "the bias must be f32[experts · columns]");
  return {{"y", x.dtype, x.shape, x.segments}};
}
std::vector<ValueSpec> infer_grad(const NodeView& view) {
  const Value& dy = view.in(ExpertBiasGrad::kDy);
  require_rows(view, dy, ExpertBiasGrad::kIds, ExpertBiasGrad::kWeights);
  return {{"dbias", DType::kF32, {experts_of(view) * dy.shape[1]}}};
}
std::vector<ValueSpec> infer_grad_weights(const NodeView& view) {
  using Op = ExpertBiasGradWeights;
  const Value &dy = view.in(Op::kDy), &ids = view.in(Op::kIds);
  require(view, ids.shape.rank() == 2 && dy.shape.rank() == 2 && dy.shape[0] == ids.shape[0],
          "there must be a row a token");
  require(view, view.in(Op::kBias).shape == Shape{experts_of(view) * dy.shape[1]},
          "the bias must be f32[experts · columns]");
  return {{"dweights", DType::kF32, ids.shape}};
}

Cost cost(const NodeView& view) {
  return streamed(view, 2);
}

std::vector<PlacementOption> placements(const NodeView&, int) {
  return {{{kS0, kS0, kS0, kR}, {kS0}}};
}
std::vector<PlacementOption> placements_grad(const NodeView&, int) {
  return {{{kS0, kS0, kS0}, {kP}}};
}
std::vector<PlacementOption> placements_grad_weights(const NodeView&, int) {
  return {{{kS0, kS0, kR}, {kS0}}};
}

void gradient(GradientBuilder& builder, const Node& node) {
  using Op = ExpertBias;
  Graph& graph = builder.graph();
  const ValueId dy = builder.gradient_of(node.outputs[Op::kY]), ids = node.inputs[Op::kIds],
                weights = node.inputs[Op::kWeights], bias = node.inputs[Op::kBias];
  if (builder.wants(node.inputs[Op::kX])) builder.add_gradient(node.inputs[Op::kX], dy);
  if (weights != kNone && builder.wants(weights))
    builder.add_gradient(weights, graph.add_node(kExpertBiasGradWeights, {dy, ids, bias}, node.attrs)[0]);
  builder.weight_grad();
  graph.add_node_into(kExpertBiasGrad, {dy, ids, weights}, {builder.parameter_gradient(bias)}, node.attrs);
}

}  // namespace

const OpDef kExpertBias{"expert_bias", "elementwise", infer, cost, placements, gradient, {{0, 0}}};
const OpDef kExpertBiasGrad{"expert_bias_grad", "elementwise", infer_grad, cost, placements_grad};
const OpDef kExpertBiasGradWeights{"expert_bias_grad_weights", "elementwise", infer_grad_weights, cost,
                                   placements_grad_weights};

ValueId add_expert_bias(Graph& graph, ValueId x, ValueId ids, ValueId weights, ValueId bias,
                        int64_t experts) {
  return graph.add_node(kExpertBias, {x, ids, weights, bias}, ExpertsAttrs{experts})[0];
}

}  // namespace strata::ops
