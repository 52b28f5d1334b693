#include "ops/capacity.h"

#include "ops/rules.h"

namespace strata::ops {

using graph::OpDef;

namespace {

void require_slots(const NodeView& view, int ids, int weights) {
  require(view, view.in(ids).dtype == DType::kI32 && view.in(ids).shape.rank() == 2, "ids must be i32[N, k]");
  require(view, view.in(weights).dtype == DType::kF32 && view.in(weights).shape == view.in(ids).shape,
          "weights must be f32[N, k], one for each id");
}

std::vector<ValueSpec> infer_limit(const NodeView& view) {
  const auto& attrs = view.attrs<CapacityAttrs>();
  require_slots(view, LimitExperts::kIds, LimitExperts::kWeights);
  const Value& ids = view.in(LimitExperts::kIds);
  require(view, attrs.experts >= 1 && attrs.capacity >= 1, "an expert must have room for a token");
  require(view, attrs.rows >= 1 && ids.shape[0] % attrs.rows == 0,
          "the groups must have equally many tokens");
  if (view.has(LimitExperts::kBegins)) {
    const Value& begins = view.in(LimitExperts::kBegins);
    require(view, begins.dtype == DType::kI32 && begins.shape == Shape{ids.shape[0]},
            "begins must be i32[N]");
  }
  return {{"kept", DType::kI32, ids.shape}};
}
Cost cost_limit(const NodeView& view) {
  return streamed(view, 4);
}
std::vector<PlacementOption> placements_limit(const NodeView&, Axis) {
  return {{{kS0, kS0, kS0}, {kS0}}};
}

std::vector<ValueSpec> infer_kept(const NodeView& view) {
  require_slots(view, WeightsOfKept::kIds, WeightsOfKept::kWeights);
  return {{"kept", DType::kF32, view.in(WeightsOfKept::kWeights).shape}};
}
Cost cost_kept(const NodeView& view) {
  return streamed(view, 1);
}
std::vector<PlacementOption> placements_kept(const NodeView&, Axis) {
  return {{{kS0, kS0}, {kS0}}};
}
void gradient_kept(GradientBuilder& builder, const Node& node) {
  const ValueId given = builder.gradient_of(node.outputs[WeightsOfKept::kKept]);
  if (given == kNone) return;
  builder.add_gradient(node.inputs[WeightsOfKept::kWeights],
                       weights_of_kept(builder.graph(), given, node.inputs[WeightsOfKept::kIds]));
}

}  // namespace

const OpDef kLimitExperts{"limit_experts", "router", infer_limit, cost_limit, placements_limit};
const OpDef kWeightsOfKept{"weights_of_kept", "elementwise",   infer_kept,
                           cost_kept,         placements_kept, gradient_kept};

ValueId limit_experts(Graph& graph, ValueId ids, ValueId scores, ValueId begins, const CapacityAttrs& attrs) {
  return graph.add_node(kLimitExperts, {ids, scores, begins}, attrs)[0];
}

ValueId weights_of_kept(Graph& graph, ValueId weights, ValueId ids) {
  return graph.add_node(kWeightsOfKept, {weights, ids})[0];
}

}  // namespace strata::ops
