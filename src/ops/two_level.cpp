#include "ops/two_level.h"

#include "ops/rules.h"

namespace strata::ops {

using graph::OpDef;

namespace {

void require_levels(const NodeView& view, const Value& groups, const Value& logits) {
  require(view,
          groups.dtype == DType::kF32 && logits.dtype == DType::kF32 && groups.shape.rank() == 2 &&
              logits.shape.rank() == 2 && groups.shape[0] == logits.shape[0],
          "groups must be f32[N, groups] and logits f32[N, experts]");
  require(view, groups.shape[1] >= 1 && logits.shape[1] % groups.shape[1] == 0,
          "the groups must have equally many experts");
}
Cost cost(const NodeView& view) {
  return streamed(view, 32);
}
std::vector<ValueSpec> infer_logits(const NodeView& view) {
  const Value& logits = view.in(TwoLevelLogits::kLogits);
  require_levels(view, view.in(TwoLevelLogits::kGroups), logits);
  return {{"y", DType::kF32, logits.shape}};
}
std::vector<PlacementOption> placements_logits(const NodeView&, Axis) {
  return {{{kS0, kS0}, {kS0}}};
}
void gradient_logits(GradientBuilder& builder, const Node& node) {
  const ValueId given = builder.gradient_of(node.outputs[TwoLevelLogits::kY]);
  if (given == kNone) return;
  const ValueId groups = node.inputs[TwoLevelLogits::kGroups], logits = node.inputs[TwoLevelLogits::kLogits];
  const auto out = builder.graph().add_node(kTwoLevelLogitsGrad, {given, groups, logits});
  if (builder.wants(groups)) builder.add_gradient(groups, out[TwoLevelLogitsGrad::kDgroups]);
  if (builder.wants(logits)) builder.add_gradient(logits, out[TwoLevelLogitsGrad::kDlogits]);
}
std::vector<ValueSpec> infer_grad(const NodeView& view) {
  const Value &groups = view.in(TwoLevelLogitsGrad::kGroups), &logits = view.in(TwoLevelLogitsGrad::kLogits);
  require_levels(view, groups, logits);
  require(view, view.in(TwoLevelLogitsGrad::kDy).shape == logits.shape, "the gradient must be as the logits");
  return {{"dgroups", DType::kF32, groups.shape}, {"dlogits", DType::kF32, logits.shape}};
}
std::vector<PlacementOption> placements_grad(const NodeView&, Axis) {
  return {{{kS0, kS0, kS0}, {kS0, kS0}}};
}

}  // namespace

const OpDef kTwoLevelLogits{"two_level_logits", "router",       infer_logits, cost,
                            placements_logits,  gradient_logits};
const OpDef kTwoLevelLogitsGrad{"two_level_logits_grad", "router", infer_grad, cost, placements_grad};

ValueId two_level_logits(Graph& graph, ValueId groups, ValueId logits) {
  return graph.add_node(kTwoLevelLogits, {groups, logits})[0];
}

}  // namespace strata::ops
