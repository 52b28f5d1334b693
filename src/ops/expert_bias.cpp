#include "ops/experts.h"
#include "ops/rules.h"

namespace strata::ops {

using graph::OpDef;

namespace {

int64_t experts_of(const NodeView& view) {
  return view.attrs<ExpertsAttrs>().experts;
}

Shape shape_of_weights(const NodeView& view, int ids, int offsets) {
  const Shape& slots = view.in(ids).shape;
  return view.has(offsets) ? Shape{slots.elements()} : slots;
}

// `rows`: what has a row a slot, or with weights a row a token.
void require_rows(const NodeView& view, const Value& rows, int ids, int weights, int offsets) {
  require_slots(view, ids, offsets);
  const bool weighted = view.has(weights);
  const int64_t count = weighted ? tokens_of(view, ids, offsets) : view.in(ids).shape.elements();
  require(view, rows.shape.rank() == 2 && rows.shape[0] == count,
          "there must be a row a slot, or with weights a row a token");
  if (!weighted) return;
  const Value& of = view.in(weights);
  require(view, of.dtype == DType::kF32 && of.shape == shape_of_weights(view, ids, offsets),
          "weights must be f32[N, k], beside offsets f32[S]");
}

std::vector<ValueSpec> infer(const NodeView& view) {
  using Op = ExpertBias;
  const Value& x = view.in(Op::kX);
  require_rows(view, x, Op::kIds, Op::kWeights, Op::kOffsets);
  require(view, view.in(Op::kBias).shape == Shape{experts_of(view) * x.shape[1]},
          "the bias must be f32[experts · columns]");
  return {{"y", x.dtype, x.shape, x.segments}};
}
std::vector<ValueSpec> infer_grad(const NodeView& view) {
  using Op = ExpertBiasGrad;
  const Value& dy = view.in(Op::kDy);
  require_rows(view, dy, Op::kIds, Op::kWeights, Op::kOffsets);
  return {{"dbias", DType::kF32, {experts_of(view) * dy.shape[1]}}};
}
std::vector<ValueSpec> infer_grad_weights(const NodeView& view) {
  using Op = ExpertBiasGradWeights;
  const Value& dy = view.in(Op::kDy);
  require_slots(view, Op::kIds, Op::kOffsets);
  require(view, dy.shape.rank() == 2 && dy.shape[0] == tokens_of(view, Op::kIds, Op::kOffsets),
          "there must be a row a token");
  require(view, view.in(Op::kBias).shape == Shape{experts_of(view) * dy.shape[1]},
          "the bias must be f32[experts · columns]");
  return {{"dweights", DType::kF32, shape_of_weights(view, Op::kIds, Op::kOffsets)}};
}

Cost cost(const NodeView& view) {
  return streamed(view, 2);
}

// Tokens with offsets are one rank's.
std::vector<PlacementOption> placements(const NodeView& view, Axis) {
  if (view.has(ExpertBias::kOffsets)) return {};
  return {{{kS0, kS0, kS0, kR}, {kS0}}};
}
std::vector<PlacementOption> placements_grad(const NodeView& view, Axis) {
  if (view.has(ExpertBiasGrad::kOffsets)) return {};
  return {{{kS0, kS0, kS0}, {kP}}};
}
std::vector<PlacementOption> placements_grad_weights(const NodeView& view, Axis) {
  if (view.has(ExpertBiasGradWeights::kOffsets)) return {};
  return {{{kS0, kS0, kR}, {kS0}}};
}

void gradient(GradientBuilder& builder, const Node& node) {
  using Op = ExpertBias;
  Graph& graph = builder.graph();
  const ValueId dy = builder.gradient_of(node.outputs[Op::kY]), ids = node.inputs[Op::kIds],
                weights = node.inputs[Op::kWeights], bias = node.inputs[Op::kBias],
                offsets = node.inputs[Op::kOffsets];
  if (builder.wants(node.inputs[Op::kX])) builder.add_gradient(node.inputs[Op::kX], dy);
  if (weights != kNone && builder.wants(weights)) {
    builder.add_gradient(weights,
                         graph.add_node(kExpertBiasGradWeights, {dy, ids, bias, offsets}, node.attrs)[0]);
  }
  builder.weight_grad();
  graph.add_node_into(kExpertBiasGrad, {dy, ids, weights, offsets}, {builder.parameter_gradient(bias)},
                      node.attrs);
}

}  // namespace

const OpDef kExpertBias{"expert_bias", "elementwise", infer, cost, placements, gradient, {{0, 0}}};
const OpDef kExpertBiasGrad{"expert_bias_grad", "elementwise", infer_grad, cost, placements_grad};
const OpDef kExpertBiasGradWeights{"expert_bias_grad_weights", "elementwise", infer_grad_weights, cost,
                                   placements_grad_weights};

ValueId add_expert_bias(Graph& graph, ValueId x, ValueId ids, ValueId weights, ValueId bias, int64_t experts,
                        ValueId offsets) {
  return graph.add_node(kExpertBias, {x, ids, weights, bias, offsets}, ExpertsAttrs{experts})[0];
}

}  // namespace strata::ops
