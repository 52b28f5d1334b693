#include "ops/router.h"

#include "base/error.h"
#include "ops/rules.h"

namespace strata::ops {

using graph::OpDef;

namespace {

bool is_logits(const Value& value) {
  return value.dtype == DType::kF32 && value.shape.rank() == 2;
}

Cost cost_scores(const NodeView& view) {
  return streamed(view, 16);
}

// --- cast

std::vector<ValueSpec> infer_cast(const NodeView& view) {
  return {{"cast", view.attrs<CastAttrs>().dtype, view.in(Cast::kX).shape, view.in(Cast::kX).segments}};
}
Cost cost_cast(const NodeView& view) {
  return streamed(view, 0);
}
std::vector<PlacementOption> placements_cast(const NodeView&, Axis) {
  return {{{kS0}, {kS0}}, {{kS1}, {kS1}}};
}
void gradient_cast(GradientBuilder& builder, const Node& node) {
  const ValueId x = node.inputs[Cast::kX];
  if (!builder.wants(x)) return;
  Graph& graph = builder.graph();
  const DType dtype = graph.value(x).dtype;
  builder.add_gradient(
      x, graph.add_node(kCast, {builder.gradient_of(node.outputs[Cast::kY])}, CastAttrs{dtype})[0]);
}
ValueId recompute_cast(Graph& graph, const Node& node, int) {
  return graph.add_node(kCast, node.inputs, node.attrs)[0];
}

// --- route

std::vector<ValueSpec> infer_route(const NodeView& view) {
  const auto& attrs = view.attrs<RouteAttrs>();
  const Value& logits = view.in(Route::kLogits);
  require(view, is_logits(logits), "logits must be f32[N, experts]");
  const int64_t experts = logits.shape[1];
  require(view, attrs.k >= 1 && attrs.k <= experts,
          "a token must go to at least one expert, and at most all");
  require(view, attrs.groups >= 1 && experts % attrs.groups == 0,
          "the groups must have equally many experts");
  require(view,
          attrs.kept_groups >= 1 && attrs.kept_groups <= attrs.groups &&
              attrs.k <= attrs.kept_groups * (experts / attrs.groups),
          "the groups that are kept must have enough experts");
  if (view.has(Route::kBias)) {
    require(view, view.in(Route::kBias).shape == Shape{experts} && view.in(Route::kBias).dtype == DType::kF32,
            "the bias must be f32[experts]");
  }
  if (view.has(Route::kTokens)) {
    const Value& tokens = view.in(Route::kTokens);
    require(view, tokens.dtype == DType::kI32 && tokens.shape == Shape{logits.shape[0]},
            "tokens must be i32[N]");
  }
  return {{"ids", DType::kI32, {logits.shape[0], attrs.k}},
          {"weights", DType::kF32, {logits.shape[0], attrs.k}}};
}
std::vector<PlacementOption> placements_route(const NodeView&, Axis) {
  return {{{kS0, kR, kS0}, {kS0, kS0}}};
}
void gradient_route(GradientBuilder& builder, const Node& node) {
  const ValueId given = builder.gradient_of(node.outputs[Route::kWeights]);
  if (given == kNone) return;
  builder.add_gradient(
      node.inputs[Route::kLogits],
      builder.graph().add_node(kRouteGrad, {given, node.inputs[Route::kLogits], node.outputs[Route::kIds]},
                               node.attrs)[0]);
}
std::vector<ValueSpec> infer_route_grad(const NodeView& view) {
  const Value &given = view.in(RouteGrad::kDweights), &ids = view.in(RouteGrad::kIds);
  require(view, given.shape == ids.shape && given.dtype == DType::kF32 && ids.dtype == DType::kI32,
          "the gradient must be f32 and the ids i32, [N, k] both");
  require(view, is_logits(view.in(RouteGrad::kLogits)), "logits must be f32[N, experts]");
  return {{"dlogits", DType::kF32, view.in(RouteGrad::kLogits).shape}};
}
std::vector<PlacementOption> placements_route_grad(const NodeView&, Axis) {
  return {{{kS0, kS0, kS0}, {kS0}}};
}

// --- scale_rows

void require_row_weights(const NodeView& view, int x, int weights) {
  require(view,
          view.in(weights).dtype == DType::kF32 && view.in(x).shape.rank() == 2 &&
              view.in(weights).shape.elements() == view.in(x).shape[0],
          "weights must be f32, one for each row");
}
std::vector<ValueSpec> infer_scale_rows(const NodeView& view) {
  require_row_weights(view, ScaleRows::kX, ScaleRows::kWeights);
  const Value& x = view.in(ScaleRows::kX);
  return {{"y", x.dtype, x.shape, x.segments}};
}
Cost cost_scale_rows(const NodeView& view) {
  return streamed(view, 1);
}
std::vector<PlacementOption> placements_scale_rows(const NodeView&, Axis) {
  return {{{kS0, kS0}, {kS0}}, {{kS1, kR}, {kS1}}};
}
void gradient_scale_rows(GradientBuilder& builder, const Node& node) {
  const ValueId x = node.inputs[ScaleRows::kX], weights = node.inputs[ScaleRows::kWeights];
  const auto given = builder.graph().add_node(kScaleRowsGrad,
                                              {builder.gradient_of(node.outputs[ScaleRows::kY]), x, weights});
  builder.add_gradient(x, given[ScaleRowsGrad::kDx]);
  if (builder.wants(weights)) builder.add_gradient(weights, given[ScaleRowsGrad::kDweights]);
}
ValueId recompute_scale_rows(Graph& graph, const Node& node, int) {
  return graph.add_node(kScaleRows, node.inputs)[0];
}
std::vector<ValueSpec> infer_scale_rows_grad(const NodeView& view) {
  require_row_weights(view, ScaleRowsGrad::kX, ScaleRowsGrad::kWeights);
  const Value& x = view.in(ScaleRowsGrad::kX);
  require(view, view.in(ScaleRowsGrad::kDy).shape == x.shape, "the gradient must have the shape of x");
  return {{"dx", x.dtype, x.shape, x.segments},
          {"dweights", DType::kF32, view.in(ScaleRowsGrad::kWeights).shape}};
}
std::vector<PlacementOption> placements_scale_rows_grad(const NodeView&, Axis) {
  return {{{kS0, kS0, kS0}, {kS0, kS0}}, {{kS1, kS1, kR}, {kS1, kP}}};
}

// --- what balances experts

// Groups of tokens: 1 where they are all one.
int64_t groups_of(const NodeView& view, int64_t tokens) {
  const int64_t rows = view.attrs<RouterSumsAttrs>().rows;
  require(view, rows >= 0 && (rows == 0 || tokens % rows == 0), "the groups must have equally many tokens");
  return rows == 0 ? 1 : tokens / rows;
}
std::vector<ValueSpec> infer_sums(const NodeView& view) {
  const Value &logits = view.in(RouterSums::kLogits), &ids = view.in(RouterSums::kIds);
  require(view, is_logits(logits) && ids.dtype == DType::kI32 && ids.shape[0] == logits.shape[0],
          "logits must be f32[N, experts] and ids i32[N, k]");
  const Shape shape{groups_of(view, logits.shape[0]), logits.shape[1]};
  return {{"probabilities", DType::kF32, shape}, {"counts", DType::kF32, shape}};
}
// A rank has some groups; on the context axis some tokens of every group, as of every sequence.
bool cuts_groups(const NodeView& view, Axis axis) {
  return view.attrs<RouterSumsAttrs>().rows == 0 || axis == Axis::kContext;
}
// Which rows of a rank of the context axis would be idle depends on its place.
bool is_whole_along(const NodeView& view, Axis axis) {
  return view.attrs<RouterSumsAttrs>().idle.count > 0 && axis == Axis::kContext;
}
std::vector<PlacementOption> placements_sums(const NodeView& view, Axis axis) {
  if (is_whole_along(view, axis)) return {};
  if (cuts_groups(view, axis)) return {{{kS0, kS0}, {kP, kP}}};
  return {{{kS0, kS0}, {kS0, kS0}}};
}
graph::Attributes localize_sums(const NodeView& view, int logits) {
  auto attrs = view.attrs<RouterSumsAttrs>();
  if (view.graph.placement(view.node.inputs[static_cast<size_t>(logits)], Axis::kContext) == kS0)
    attrs.rows /= view.graph.mesh().size(Axis::kContext);
  return attrs;
}
void gradient_sums(GradientBuilder& builder, const Node& node) {
  const ValueId given = builder.gradient_of(node.outputs[RouterSums::kProbabilities]);
  if (given == kNone) return;
  const ValueId logits = node.inputs[RouterSums::kLogits];
  builder.add_gradient(logits, builder.graph().add_node(kRouterSumsGrad, {given, logits}, node.attrs)[0]);
}
std::vector<ValueSpec> infer_sums_grad(const NodeView& view) {
  const Value& logits = view.in(RouterSumsGrad::kLogits);
  require(view, is_logits(logits), "logits must be f32[N, experts]");
  require(view,
          view.in(RouterSumsGrad::kDprobabilities).shape ==
              Shape({groups_of(view, logits.shape[0]), logits.shape[1]}),
          "the gradient must have a row a group");
  return {{"dlogits", DType::kF32, logits.shape}};
}
std::vector<PlacementOption> placements_sums_grad(const NodeView& view, Axis axis) {
  if (is_whole_along(view, axis)) return {};
  if (cuts_groups(view, axis)) return {{{kR, kS0}, {kS0}}};
  return {{{kS0, kS0}, {kS0}}};
}

// f32[groups, experts].
Shape shape_of_groups(const NodeView& view, int counts, int targets) {
  require(view, view.in(counts).shape.rank() == 2 && view.in(targets).dtype == DType::kI32,
          "counts must be f32[groups, experts] and targets i32[N]");
  const int64_t all = view.in(targets).shape.elements(), rows = view.attrs<BalanceLossAttrs>().rows;
  require(view, rows >= 1 && all % rows == 0, "the groups must have equally many targets");
  const Shape shape{all / rows, view.in(counts).shape[1]};
  require(view, view.in(counts).shape == shape || view.in(counts).shape[0] == 1,
          "counts must be those of each group, or the same for all");
  return shape;
}
// Whether all groups, of which there are several, have these.
bool same_counts(const NodeView& view, int counts) {
  const Shape& targets = view.in(counts + 1).shape;
  return view.in(counts).shape[0] == 1 && targets.elements() > view.attrs<BalanceLossAttrs>().rows;
}
std::vector<ValueSpec> infer_balance(const NodeView& view) {
  require(view,
          view.in(BalanceLoss::kProbabilities).shape ==
              shape_of_groups(view, BalanceLoss::kCounts, BalanceLoss::kTargets),
          "probabilities must be f32[groups, experts]");
  return {{"sum", DType::kF64, {1}}};
}
std::vector<PlacementOption> placements_balance(const NodeView& view, Axis) {
  return {{{kS0, same_counts(view, BalanceLoss::kCounts) ? kR : kS0, kS0}, {kP}}};
}
// The seed of the sum is 1: the coefficient is the node's, and the denominator that of the main loss.
void require_plain_seed(GradientBuilder& builder, const Node& node) {
  STRATA_CHECK(builder.gradient_of(node.outputs[0]) == kNone,
               "{} has its weight as a coefficient, and was given a seed", node.op->name);
}
void gradient_balance(GradientBuilder& builder, const Node& node) {
  require_plain_seed(builder, node);
  builder.add_gradient(
      node.inputs[BalanceLoss::kProbabilities],
      builder.graph().add_node(kBalanceLossGrad,
                               {node.inputs[BalanceLoss::kCounts], node.inputs[BalanceLoss::kTargets]},
                               node.attrs)[0]);
}
std::vector<ValueSpec> infer_balance_grad(const NodeView& view) {
  return {{"dprobabilities", DType::kF32,
           shape_of_groups(view, BalanceLossGrad::kCounts, BalanceLossGrad::kTargets)}};
}
std::vector<PlacementOption> placements_balance_grad(const NodeView& view, Axis) {
  return {{{same_counts(view, BalanceLossGrad::kCounts) ? kR : kS0, kS0}, {kS0}}};
}

// --- z-loss

void require_tokens(const NodeView& view) {
  const Value& logits = view.in(RouterZLoss::kLogits);
  require(view, is_logits(logits), "logits must be f32[N, experts]");
  const Shape& targets = view.in(RouterZLoss::kTargets).shape;
  const int64_t rows = view.attrs<ZLossAttrs>().rows;
  if (rows == 0) return require(view, targets == Shape{logits.shape[0]}, "targets must be i32[N]");
  require(view, rows > 0 && logits.shape[0] % rows == 0 && targets.elements() % (logits.shape[0] / rows) == 0,
          "sequences must have equally many tokens, and equally many targets");
}
std::vector<ValueSpec> infer_z(const NodeView& view) {
  require_tokens(view);
  return {{"sum", DType::kF64, {1}}};
}
std::vector<PlacementOption> placements_z(const NodeView&, Axis) {
  return {{{kS0, kS0}, {kP}}};
}
void gradient_z(GradientBuilder& builder, const Node& node) {
  require_plain_seed(builder, node);
  builder.add_gradient(node.inputs[RouterZLoss::kLogits],
                       builder.graph().add_node(kRouterZLossGrad, node.inputs, node.attrs)[0]);
}
std::vector<ValueSpec> infer_z_grad(const NodeView& view) {
  require_tokens(view);
  return {{"dlogits", DType::kF32, view.in(RouterZLossGrad::kLogits).shape}};
}
std::vector<PlacementOption> placements_z_grad(const NodeView&, Axis) {
  return {{{kS0, kS0}, {kS0}}};
}

}  // namespace

const OpDef kCast{"cast",          "elementwise", infer_cast, cost_cast,
                  placements_cast, gradient_cast, {},         recompute_cast};
const OpDef kRoute{"route", "router", infer_route, cost_scores, placements_route, gradient_route};
const OpDef kRouteGrad{"route_grad", "router", infer_route_grad, cost_scores, placements_route_grad};
const OpDef kScaleRows{"scale_rows",
                       "elementwise",
                       infer_scale_rows,
                       cost_scale_rows,
                       placements_scale_rows,
                       gradient_scale_rows,
                       {},
                       recompute_scale_rows};
const OpDef kScaleRowsGrad{"scale_rows_grad", "elementwise", infer_scale_rows_grad, cost_scale_rows,
                           placements_scale_rows_grad};
const OpDef kRouterSums{
    .name = "router_sums",
    .family = "router",
    .infer = infer_sums,
    .cost = cost_scores,
    .placements = placements_sums,
    .gradient = gradient_sums,
    .localize = [](const NodeView& view) { return localize_sums(view, RouterSums::kLogits); }};
const OpDef kRouterSumsGrad{
    .name = "router_sums_grad",
    .family = "router",
    .infer = infer_sums_grad,
    .cost = cost_scores,
    .placements = placements_sums_grad,
    .localize = [](const NodeView& view) { return localize_sums(view, RouterSumsGrad::kLogits); }};
const OpDef kBalanceLoss{"balance_loss", "router",           infer_balance,
                         cost_scores,    placements_balance, gradient_balance};
const OpDef kBalanceLossGrad{"balance_loss_grad", "router", infer_balance_grad, cost_scores,
                             placements_balance_grad};
const OpDef kRouterZLoss{"router_z_loss", "router", infer_z, cost_scores, placements_z, gradient_z};
const OpDef kRouterZLossGrad{"router_z_loss_grad", "router", infer_z_grad, cost_scores, placements_z_grad};

ValueId cast(Graph& graph, ValueId x, DType dtype) {
  if (graph.value(x).dtype == dtype) return x;
  return graph.add_node(kCast, {x}, CastAttrs{dtype})[0];
}

Routed route(Graph& graph, ValueId logits, ValueId bias, const RouteAttrs& attrs, ValueId tokens) {
  const auto out = graph.add_node(kRoute, {logits, bias, tokens}, attrs);
  return {out[Route::kIds], out[Route::kWeights]};
}

ValueId scale_rows(Graph& graph, ValueId x, ValueId weights) {
  return graph.add_node(kScaleRows, {x, weights})[0];
}

RouterSumsOf router_sums(Graph& graph, ValueId logits, ValueId ids, const RouterSumsAttrs& attrs) {
  const auto out = graph.add_node(kRouterSums, {logits, ids}, attrs);
  return {out[RouterSums::kProbabilities], out[RouterSums::kCounts]};
}

void balance_loss(Graph& graph, const RouterSumsOf& sums, ValueId targets, ValueId sum,
                  const BalanceLossAttrs& attrs) {
  graph.add_node_into(kBalanceLoss, {sums.probabilities, sums.counts, targets}, {sum}, attrs);
}

void router_z_loss(Graph& graph, ValueId logits, ValueId targets, ValueId sum, const ZLossAttrs& attrs) {
  graph.add_node_into(kRouterZLoss, {logits, targets}, {sum}, attrs);
}

}  // namespace strata::ops
