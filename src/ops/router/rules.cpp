#include "ops/router/router.h"

#include "base/error.h"
#include "ops/rules.h"

namespace strata::ops {
namespace {

template <typename Op>
void require_logits(const View<Op>& node) {
  require(node, node.in.logits->shape.rank() == 2, "logits must be f32[N, experts]");
}
template <typename Op>
Cost score_cost(const View<Op>& node) {
  return streamed(node, 16);
}

template <typename Op>
void require_row_weights(const View<Op>& node) {
  const Shape& x = node.in.x->shape;
  require(node, x.rank() == 2 && node.in.weights->shape.elements() == x[0],
          "weights must be f32, one for each row");
}

}  // namespace

const OpDef Cast::def = define<Cast>({
    .name = "cast",
    .family = "elementwise",
    .infer = [](const auto& node) -> Outputs<Cast> {
      return {.cast = {node.attrs.dtype, node.in.x->shape, node.in.x->segments}};
    },
    .cost = [](const auto& node) { return streamed(node, 0); },
    .placements = [](const auto&, Axis) -> Splits<Cast> {
      return {{{.x = kS0}, {.cast = kS0}}, {{.x = kS1}, {.cast = kS1}}};
    },
    .gradient =
        [](GradientBuilder& builder, const auto& node) {
          if (!builder.wants(node.in.x)) return;
          const ValueId dy = builder.gradient_of(node.out.cast);
          builder.add_gradient(node.in.x, add<Cast>(builder.graph(), {.x = dy}, {node.in.x->dtype}).cast);
        },
    .recompute = again<Cast>,
});

ValueId cast(Graph& graph, ValueId x, DType dtype) {
  return graph.value(x).dtype == dtype ? x : add<Cast>(graph, {.x = x}, {dtype}).cast;
}

// --- Where tokens go

const OpDef Route::def = define<Route>({
    .name = "route",
    .family = "router",
    .infer = [](const auto& node) -> Outputs<Route> {
      const RouteAttrs& attrs = node.attrs;
      require_logits(node);
      const int64_t rows = node.in.logits->shape[0], experts = node.in.logits->shape[1];
      require(node, attrs.k >= 1 && attrs.k <= experts,
              "a token must go to at least one expert, and at most all");
      require(node, attrs.groups >= 1 && experts % attrs.groups == 0,
              "the groups must have the same number of experts");
      require(node,
              attrs.kept_groups >= 1 && attrs.kept_groups <= attrs.groups &&
                  attrs.k <= attrs.kept_groups * (experts / attrs.groups),
              "the groups that are kept must have enough experts");
      require(node, !node.in.bias || node.in.bias->shape == Shape{experts}, "the bias must be f32[experts]");
      require(node, !node.in.tokens || node.in.tokens->shape == Shape{rows}, "tokens must be i32[N]");
      return {.ids = {DType::kI32, {rows, attrs.k}}, .weights = {DType::kF32, {rows, attrs.k}}};
    },
    .cost =
        [](const auto& node) {
          // Each of the k experts is found by comparing all of them.
          return streamed(node, 16 + 2 * static_cast<double>(node.attrs.k));
        },
    .placements = [](const auto&, Axis) -> Splits<Route> {
      return {{{.logits = kS0, .bias = kR, .tokens = kS0}, {.ids = kS0, .weights = kS0}}};
    },
    .gradient =
        [](GradientBuilder& builder, const auto& node) {
          const ValueId given = builder.gradient_of(node.out.weights);
          if (given == kNone) return;
          const auto made =
              add<RouteGrad>(builder.graph(),
                             {.dweights = given, .logits = node.in.logits, .ids = node.out.ids}, node.attrs);
          builder.add_gradient(node.in.logits, made.dlogits);
        },
});

const OpDef RouteGrad::def = define<RouteGrad>({
    .name = "route_grad",
    .family = "router",
    .infer = [](const auto& node) -> Outputs<RouteGrad> {
      require(node, node.in.dweights->shape == node.in.ids->shape,
              "the gradient must be f32 and the ids i32, [N, k] both");
      require_logits(node);
      return {.dlogits = {DType::kF32, node.in.logits->shape}};
    },
    .cost = score_cost<RouteGrad>,
    .placements = [](const auto&, Axis) -> Splits<RouteGrad> {
      return {{{.dweights = kS0, .logits = kS0, .ids = kS0}, {.dlogits = kS0}}};
    },
});

const OpDef ScaleRows::def = define<ScaleRows>({
    .name = "scale_rows",
    .family = "elementwise",
    .infer = [](const auto& node) -> Outputs<ScaleRows> {
      require_row_weights(node);
      return {.y = {node.in.x->dtype, node.in.x->shape, node.in.x->segments}};
    },
    .cost = [](const auto& node) { return streamed(node, 1); },
    .placements = [](const auto&, Axis) -> Splits<ScaleRows> {
      return {{{.x = kS0, .weights = kS0}, {.y = kS0}}, {{.x = kS1, .weights = kR}, {.y = kS1}}};
    },
    .gradient =
        [](GradientBuilder& builder, const auto& node) {
          const auto& [x, weights] = node.in;
          const ValueId dy = builder.gradient_of(node.out.y);
          const auto made = add<ScaleRowsGrad>(builder.graph(), {.dy = dy, .x = x, .weights = weights});
          builder.add_gradient(x, made.dx);
          if (builder.wants(weights)) builder.add_gradient(weights, made.dweights);
        },
    .recompute = again<ScaleRows>,
});

const OpDef ScaleRowsGrad::def = define<ScaleRowsGrad>({
    .name = "scale_rows_grad",
    .family = "elementwise",
    .infer = [](const auto& node) -> Outputs<ScaleRowsGrad> {
      require_row_weights(node);
      const Value& x = *node.in.x;
      require(node, node.in.dy->shape == x.shape, "the gradient must have the shape of x");
      return {.dx = {x.dtype, x.shape, x.segments}, .dweights = {DType::kF32, node.in.weights->shape}};
    },
    .cost = [](const auto& node) { return streamed(node, 1); },
    .placements = [](const auto&, Axis) -> Splits<ScaleRowsGrad> {
      return {{{.dy = kS0, .x = kS0, .weights = kS0}, {.dx = kS0, .dweights = kS0}},
              {{.dy = kS1, .x = kS1, .weights = kR}, {.dx = kS1, .dweights = kP}}};
    },
});

ValueId scale_rows(Graph& graph, ValueId x, ValueId weights) {
  return add<ScaleRows>(graph, {.x = x, .weights = weights}).y;
}

// --- What balances experts

namespace {

// [groups, experts]; one group where the tokens are all one.
template <typename Op>
Shape shape_of_sums(const View<Op>& node) {
  const int64_t tokens = node.in.logits->shape[0], rows = node.attrs.rows;
  require(node, rows >= 0 && (rows == 0 || tokens % rows == 0),
          "the groups must have the same number of tokens");
  return {rows == 0 ? 1 : tokens / rows, node.in.logits->shape[1]};
}
// A rank has some groups; on the context axis some tokens of every group, as of every sequence.
bool cuts_groups(const RouterSumsAttrs& attrs, Axis axis) {
  return attrs.rows == 0 || axis == Axis::kContext;
}
// On the context axis, the idle rows of a rank depend on its place.
bool is_whole_along(const RouterSumsAttrs& attrs, Axis axis) {
  return attrs.idle.count > 0 && axis == Axis::kContext;
}
template <typename Op>
RouterSumsAttrs local_sums(const View<Op>& node) {
  RouterSumsAttrs attrs = node.attrs;
  if (node.graph.placement(node.in.logits, Axis::kContext) == kS0)
    attrs.rows /= node.graph.mesh().size(Axis::kContext);
  return attrs;
}

// [groups, experts].
template <typename Op>
Shape shape_of_groups(const View<Op>& node) {
  const Shape& counts = node.in.counts->shape;
  require(node, counts.rank() == 2, "counts must be f32[groups, experts] and targets i32[N]");
  const int64_t all = node.in.targets->shape.elements(), rows = node.attrs.rows;
  require(node, rows >= 1 && all % rows == 0, "the groups must have the same number of targets");
  const Shape shape{all / rows, counts[1]};
  require(node, counts == shape || counts[0] == 1, "counts must be those of each group, or the same for all");
  return shape;
}
// The placement of counts: whole if several groups share them.
template <typename Op>
Placement placement_of_counts(const View<Op>& node) {
  const bool same = node.in.counts->shape[0] == 1 && node.in.targets->shape.elements() > node.attrs.rows;
  return same ? kR : kS0;
}
template <typename Op>
void require_loss_seed(const View<Op>& node) {
  require(node, !node.in.seed || node.in.seed->shape == Shape{1}, "the seed must be f32[1]");
}

}  // namespace

const OpDef RouterSums::def = define<RouterSums>({
    .name = "router_sums",
    .family = "router",
    .infer = [](const auto& node) -> Outputs<RouterSums> {
      require(node, node.in.logits->shape.rank() == 2 && node.in.ids->shape[0] == node.in.logits->shape[0],
              "logits must be f32[N, experts] and ids i32[N, k]");
      const Shape shape = shape_of_sums(node);
      return {.probabilities = {DType::kF32, shape}, .counts = {DType::kF32, shape}};
    },
    .cost = score_cost<RouterSums>,
    .placements = [](const auto& node, Axis axis) -> Splits<RouterSums> {
      if (is_whole_along(node.attrs, axis)) return {};
      const Placement sums = cuts_groups(node.attrs, axis) ? kP : kS0;
      return {{{.logits = kS0, .ids = kS0}, {.probabilities = sums, .counts = sums}}};
    },
    .gradient =
        [](GradientBuilder& builder, const auto& node) {
          const ValueId given = builder.gradient_of(node.out.probabilities);
          if (given == kNone) return;
          const auto made = add<RouterSumsGrad>(
              builder.graph(), {.dprobabilities = given, .logits = node.in.logits}, node.attrs);
          builder.add_gradient(node.in.logits, made.dlogits);
        },
    .localize = local_sums<RouterSums>,
});

const OpDef RouterSumsGrad::def = define<RouterSumsGrad>({
    .name = "router_sums_grad",
    .family = "router",
    .infer = [](const auto& node) -> Outputs<RouterSumsGrad> {
      require_logits(node);
      require(node, node.in.dprobabilities->shape == shape_of_sums(node),
              "the gradient must have a row a group");
      return {.dlogits = {DType::kF32, node.in.logits->shape}};
    },
    .cost = score_cost<RouterSumsGrad>,
    .placements = [](const auto& node, Axis axis) -> Splits<RouterSumsGrad> {
      if (is_whole_along(node.attrs, axis)) return {};
      return {
          {{.dprobabilities = cuts_groups(node.attrs, axis) ? kR : kS0, .logits = kS0}, {.dlogits = kS0}}};
    },
    .localize = local_sums<RouterSumsGrad>,
});

const OpDef BalanceLoss::def = define<BalanceLoss>({
    .name = "balance_loss",
    .family = "router",
    .infer = [](const auto& node) -> Outputs<BalanceLoss> {
      require(node, node.in.probabilities->shape == shape_of_groups(node),
              "probabilities must be f32[groups, experts]");
      return {.sum = {DType::kF64, {1}}};
    },
    .cost = score_cost<BalanceLoss>,
    .placements = [](const auto& node, Axis) -> Splits<BalanceLoss> {
      return {{{.probabilities = kS0, .counts = placement_of_counts(node), .targets = kS0}, {.sum = kP}}};
    },
    .gradient =
        [](GradientBuilder& builder, const auto& node) {
          const auto made = add<BalanceLossGrad>(builder.graph(),
                                                 {.counts = node.in.counts,
                                                  .targets = node.in.targets,
                                                  .seed = builder.gradient_of(node.out.sum)},
                                                 node.attrs);
          builder.add_gradient(node.in.probabilities, made.dprobabilities);
        },
});

const OpDef BalanceLossGrad::def = define<BalanceLossGrad>({
    .name = "balance_loss_grad",
    .family = "router",
    .infer = [](const auto& node) -> Outputs<BalanceLossGrad> {
      require_loss_seed(node);
      return {.dprobabilities = {DType::kF32, shape_of_groups(node)}};
    },
    .cost = score_cost<BalanceLossGrad>,
    .placements = [](const auto& node, Axis) -> Splits<BalanceLossGrad> {
      return {{{.counts = placement_of_counts(node), .targets = kS0}, {.dprobabilities = kS0}}};
    },
});

// --- The z-loss

namespace {

template <typename Op>
void require_z_targets(const View<Op>& node) {
  require_logits(node);
  const int64_t tokens = node.in.logits->shape[0], rows = node.attrs.rows;
  const Shape& targets = node.in.targets->shape;
  if (rows == 0) return require(node, targets == Shape{tokens}, "targets must be i32[N]");
  require(node, rows > 0 && tokens % rows == 0 && targets.elements() % (tokens / rows) == 0,
          "sequences must have the same number of tokens and the same number of targets");
}

}  // namespace

const OpDef RouterZLoss::def = define<RouterZLoss>({
    .name = "router_z_loss",
    .family = "router",
    .infer = [](const auto& node) -> Outputs<RouterZLoss> {
      require_z_targets(node);
      return {.sum = {DType::kF64, {1}}};
    },
    .cost = score_cost<RouterZLoss>,
    .placements = [](const auto&, Axis) -> Splits<RouterZLoss> {
      return {{{.logits = kS0, .targets = kS0}, {.sum = kP}}};
    },
    .gradient =
        [](GradientBuilder& builder, const auto& node) {
          const auto made = add<RouterZLossGrad>(builder.graph(),
                                                 {.logits = node.in.logits,
                                                  .targets = node.in.targets,
                                                  .seed = builder.gradient_of(node.out.sum)},
                                                 node.attrs);
          builder.add_gradient(node.in.logits, made.dlogits);
        },
});

const OpDef RouterZLossGrad::def = define<RouterZLossGrad>({
    .name = "router_z_loss_grad",
    .family = "router",
    .infer = [](const auto& node) -> Outputs<RouterZLossGrad> {
      require_loss_seed(node);
      require_z_targets(node);
      return {.dlogits = {DType::kF32, node.in.logits->shape}};
    },
    .cost = score_cost<RouterZLossGrad>,
    .placements = [](const auto&, Axis) -> Splits<RouterZLossGrad> {
      return {{{.logits = kS0, .targets = kS0}, {.dlogits = kS0}}};
    },
});

}  // namespace strata::ops
