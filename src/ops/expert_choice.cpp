#include "ops/expert_choice.h"

#include "ops/rules.h"

namespace strata::ops {

using graph::OpDef;

namespace {

Cost cost_choice(const NodeView& view) {
  return streamed(view, 16);
}
Cost cost_rows(const NodeView& view) {
  return streamed(view, 1);
}

// Slots of the groups of all tokens.
int64_t slots_of(const NodeView& view, const Value& logits) {
  const auto& attrs = view.attrs<ExpertChoiceAttrs>();
  require(view, logits.dtype == DType::kF32 && logits.shape.rank() == 2, "logits must be f32[N, experts]");
  require(view, attrs.rows >= 1 && logits.shape[0] % attrs.rows == 0,
          "the groups must have equally many tokens");
  require(view, attrs.capacity >= 1 && attrs.capacity <= attrs.rows,
          "an expert must take at least one token of a group, and at most all");
  return logits.shape[0] / attrs.rows * logits.shape[1] * attrs.capacity;
}
std::vector<ValueSpec> infer_choice(const NodeView& view) {
  const int64_t slots = slots_of(view, view.in(ExpertChoice::kLogits));
  return {{"tokens", DType::kI32, {slots}},
          {"experts", DType::kI32, {slots, 1}},
          {"weights", DType::kF32, {slots, 1}}};
}
std::vector<PlacementOption> placements_choice(const NodeView&, Axis) {
  return {{{kS0}, {kS0, kS0, kS0}}};
}
void gradient_choice(GradientBuilder& builder, const Node& node) {
  const ValueId given = builder.gradient_of(node.outputs[ExpertChoice::kWeights]);
  if (given == kNone) return;
  const ValueId logits = node.inputs[ExpertChoice::kLogits];
  builder.add_gradient(
      logits, builder.graph().add_node(kExpertChoiceGrad,
                                       {given, logits, node.outputs[ExpertChoice::kTokens]}, node.attrs)[0]);
}
std::vector<ValueSpec> infer_choice_grad(const NodeView& view) {
  const Value& logits = view.in(ExpertChoiceGrad::kLogits);
  const int64_t slots = slots_of(view, logits);
  require(view,
          view.in(ExpertChoiceGrad::kDweights).shape.elements() == slots &&
              view.in(ExpertChoiceGrad::kTokens).shape == Shape{slots},
          "the gradient must be f32 and the tokens i32, one a slot");
  return {{"dlogits", DType::kF32, logits.shape}};
}
std::vector<PlacementOption> placements_choice_grad(const NodeView&, Axis) {
  return {{{kS0, kS0, kS0}, {kS0}}};
}

// Rows of the result, where those of the input come `from` a group and `to` are made of it.
std::vector<ValueSpec> infer_rows(const NodeView& view, int64_t from, int64_t to) {
  const Value &x = view.in(GroupRows::kX), &tokens = view.in(GroupRows::kTokens);
  const int64_t slots = view.attrs<GroupRowsAttrs>().slots;
  require(view, x.shape.rank() == 2 && from >= 1 && to >= 1 && x.shape[0] % from == 0,
          "x must have the rows of whole groups");
  const int64_t groups = x.shape[0] / from;
  require(view, tokens.dtype == DType::kI32 && tokens.shape == Shape{groups * slots},
          "tokens must be i32, one a slot");
  return {{"y", x.dtype, {groups * to, x.shape[1]}, x.segments}};
}
std::vector<ValueSpec> infer_gather(const NodeView& view) {
  const auto& attrs = view.attrs<GroupRowsAttrs>();
  return infer_rows(view, attrs.rows, attrs.slots);
}
std::vector<ValueSpec> infer_scatter(const NodeView& view) {
  const auto& attrs = view.attrs<GroupRowsAttrs>();
  return infer_rows(view, attrs.slots, attrs.rows);
}
std::vector<PlacementOption> placements_rows(const NodeView&, Axis) {
  return {{{kS0, kS0}, {kS0}}, {{kS1, kR}, {kS1}}};
}
template <const OpDef* kOther>
void gradient_rows(GradientBuilder& builder, const Node& node) {
  const ValueId x = node.inputs[GroupRows::kX];
  if (!builder.wants(x)) return;
  builder.add_gradient(
      x, builder.graph().add_node(
             *kOther, {builder.gradient_of(node.outputs[GroupRows::kY]), node.inputs[GroupRows::kTokens]},
             node.attrs)[0]);
}

}  // namespace

const OpDef kExpertChoice{"expert_choice", "router",          infer_choice,
                          cost_choice,     placements_choice, gradient_choice};
const OpDef kExpertChoiceGrad{"expert_choice_grad", "router", infer_choice_grad, cost_choice,
                              placements_choice_grad};
const OpDef kGatherRows{"gather_rows", "elementwise",   infer_gather,
                        cost_rows,     placements_rows, gradient_rows<&kScatterRows>};
const OpDef kScatterRows{"scatter_rows", "elementwise",   infer_scatter,
                         cost_rows,      placements_rows, gradient_rows<&kGatherRows>};

ChosenTokens expert_choice(Graph& graph, ValueId logits, const ExpertChoiceAttrs& attrs) {
  const auto out = graph.add_node(kExpertChoice, {logits}, attrs);
  return {out[ExpertChoice::kTokens], out[ExpertChoice::kExperts], out[ExpertChoice::kWeights]};
}
ValueId gather_rows(Graph& graph, ValueId x, ValueId tokens, const GroupRowsAttrs& attrs) {
  return graph.add_node(kGatherRows, {x, tokens}, attrs)[0];
}
ValueId scatter_rows(Graph& graph, ValueId h, ValueId tokens, const GroupRowsAttrs& attrs) {
  return graph.add_node(kScatterRows, {h, tokens}, attrs)[0];
}

}  // namespace strata::ops
