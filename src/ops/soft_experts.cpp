#include "ops/soft_experts.h"

#include "ops/rules.h"

namespace strata::ops {

using graph::OpDef;

namespace {

// Of a group: N tokens, as many slots as logits have columns. Rows of the slots of all groups.
int64_t slots_of(const NodeView& view, const Value& logits) {
  const auto& attrs = view.attrs<SoftExpertsAttrs>();
  require(view, logits.dtype == DType::kF32 && logits.shape.rank() == 2, "logits must be f32[N, slots]");
  require(view, attrs.rows >= 1 && logits.shape[0] % attrs.rows == 0,
          "the groups must have equally many tokens");
  require(view, attrs.experts >= 1 && logits.shape[1] % attrs.experts == 0,
          "experts must have equally many slots");
  return logits.shape[0] / attrs.rows * logits.shape[1];
}
void require_rows(const NodeView& view, const Value& x, int64_t rows) {
  require(view, x.shape.rank() == 2 && x.shape[0] == rows, "there must be a row a token, or a row a slot");
}
// Products of all tokens of a group with all its slots; `products` such.
Cost cost(const NodeView& view, int x, int logits, double products) {
  const double pairs = static_cast<double>(view.in(logits).shape.elements());
  return {2 * products * pairs * static_cast<double>(view.in(x).shape[1]), graph::streamed_bytes(view)};
}

std::vector<ValueSpec> infer_dispatch(const NodeView& view) {
  const Value &x = view.in(SoftDispatch::kX), &logits = view.in(SoftDispatch::kLogits);
  const int64_t slots = slots_of(view, logits);
  require_rows(view, x, logits.shape[0]);
  return {{"slots", x.dtype, {slots, x.shape[1]}},
          {"experts", DType::kI32, {slots, 1}},
          {"weights", DType::kF32, {slots, 1}}};
}
Cost cost_dispatch(const NodeView& view) {
  return cost(view, SoftDispatch::kX, SoftDispatch::kLogits, 1);
}
std::vector<PlacementOption> placements_dispatch(const NodeView&, Axis) {
  return {{{kS0, kS0}, {kS0, kS0, kS0}}};
}
void gradient_dispatch(GradientBuilder& builder, const Node& node) {
  const ValueId given = builder.gradient_of(node.outputs[SoftDispatch::kSlots]);
  if (given == kNone) return;
  const ValueId x = node.inputs[SoftDispatch::kX], logits = node.inputs[SoftDispatch::kLogits];
  const auto out = builder.graph().add_node(kSoftDispatchGrad, {given, x, logits}, node.attrs);
  if (builder.wants(x)) builder.add_gradient(x, out[SoftDispatchGrad::kDx]);
  if (builder.wants(logits)) builder.add_gradient(logits, out[SoftDispatchGrad::kDlogits]);
}
std::vector<ValueSpec> infer_dispatch_grad(const NodeView& view) {
  const Value &x = view.in(SoftDispatchGrad::kX), &logits = view.in(SoftDispatchGrad::kLogits);
  require_rows(view, x, logits.shape[0]);
  require_rows(view, view.in(SoftDispatchGrad::kDslots), slots_of(view, logits));
  return {{"dx", x.dtype, x.shape}, {"dlogits", DType::kF32, logits.shape}};
}
Cost cost_dispatch_grad(const NodeView& view) {
  return cost(view, SoftDispatchGrad::kX, SoftDispatchGrad::kLogits, 2);
}

std::vector<ValueSpec> infer_combine(const NodeView& view) {
  const Value &h = view.in(SoftCombine::kH), &logits = view.in(SoftCombine::kLogits);
  require_rows(view, h, slots_of(view, logits));
  return {{"y", h.dtype, {logits.shape[0], h.shape[1]}}};
}
Cost cost_combine(const NodeView& view) {
  return cost(view, SoftCombine::kH, SoftCombine::kLogits, 1);
}
std::vector<PlacementOption> placements_combine(const NodeView&, Axis) {
  return {{{kS0, kS0}, {kS0}}};
}
void gradient_combine(GradientBuilder& builder, const Node& node) {
  const ValueId given = builder.gradient_of(node.outputs[SoftCombine::kY]);
  if (given == kNone) return;
  const ValueId h = node.inputs[SoftCombine::kH], logits = node.inputs[SoftCombine::kLogits];
  const auto out = builder.graph().add_node(kSoftCombineGrad, {given, h, logits}, node.attrs);
  if (builder.wants(h)) builder.add_gradient(h, out[SoftCombineGrad::kDh]);
  if (builder.wants(logits)) builder.add_gradient(logits, out[SoftCombineGrad::kDlogits]);
}
std::vector<ValueSpec> infer_combine_grad(const NodeView& view) {
  const Value &h = view.in(SoftCombineGrad::kH), &logits = view.in(SoftCombineGrad::kLogits);
  require_rows(view, h, slots_of(view, logits));
  require_rows(view, view.in(SoftCombineGrad::kDy), logits.shape[0]);
  return {{"dh", h.dtype, h.shape}, {"dlogits", DType::kF32, logits.shape}};
}
Cost cost_combine_grad(const NodeView& view) {
  return cost(view, SoftCombineGrad::kH, SoftCombineGrad::kLogits, 2);
}
std::vector<PlacementOption> placements_grad(const NodeView&, Axis) {
  return {{{kS0, kS0, kS0}, {kS0, kS0}}};
}

}  // namespace

const OpDef kSoftDispatch{"soft_dispatch",     "router",         infer_dispatch, cost_dispatch,
                          placements_dispatch, gradient_dispatch};
const OpDef kSoftDispatchGrad{"soft_dispatch_grad", "router", infer_dispatch_grad, cost_dispatch_grad,
                              placements_grad};
const OpDef kSoftCombine{"soft_combine", "router",           infer_combine,
                         cost_combine,   placements_combine, gradient_combine};
const OpDef kSoftCombineGrad{"soft_combine_grad", "router", infer_combine_grad, cost_combine_grad,
                             placements_grad};

SoftSlots soft_dispatch(Graph& graph, ValueId x, ValueId logits, const SoftExpertsAttrs& attrs) {
  const auto out = graph.add_node(kSoftDispatch, {x, logits}, attrs);
  return {out[SoftDispatch::kSlots], out[SoftDispatch::kExperts], out[SoftDispatch::kWeights]};
}
ValueId soft_combine(Graph& graph, ValueId h, ValueId logits, const SoftExpertsAttrs& attrs) {
  return graph.add_node(kSoftCombine, {h, logits}, attrs)[0];
}

}  // namespace strata::ops
