#include "ops/rules.h"
#include "graph/reshard.h"
#include "graph/shard.h"
#include "ops/gated_norm/gated_norm.h"

namespace strata::ops {
namespace {

template <typename Op>
void require_gated(const View<Op>& node) {
  const auto& in = node.in;
  const Value& x = *in.x;
  require(node, x.shape.rank() == 2 && in.gate->shape == x.shape && in.gate->dtype == x.dtype,
          "x and its gate must be [N, D] of one dtype");
  require(node, node.attrs.group > 0 && node.attrs.gate != GateKind::kIdentity,
          "a gated norm has groups of columns and the gate SiLU or sigmoid");
  if constexpr (requires { in.means; })
    require(node, !in.means || in.means->shape == Shape{x.shape[0], 1}, "means must be f32[N, 1]");
  if constexpr (requires { in.dy->shape; })
    require(node, !in.dy.present() || (in.dy->shape == x.shape && in.dy->dtype == x.dtype),
            "the gradient must have the shape and dtype of x");
}
template <typename Op>
void require_weight(const View<Op>& node, int64_t groups) {
  const int64_t width = node.in.x->shape[1];
  const int64_t wanted = node.attrs.shared ? width / groups : width;
  require(node, node.in.weight->shape == Shape{wanted},
          "the weight must have one element a column, or one a column of a group if groups share it");
}

// Groups of a row of forward.
int64_t groups_of(const View<GatedNorm>& node) {
  const int64_t width = node.in.x->shape[1], group = node.attrs.group;
  if (node.in.means) return 1;
  require(node, width % group == 0, "the columns must be whole groups");
  return width / group;
}
// And of its gradients.
template <typename Op>
int64_t groups_by_rstd(const View<Op>& node) {
  const Shape &x = node.in.x->shape, &rstd = node.in.rstd->shape;
  require(node, rstd.rank() == 2 && rstd[0] == x[0] && rstd[1] > 0 && x[1] % rstd[1] == 0,
          "rstd must be f32[N, groups]");
  return rstd[1];
}

// By rows; and by columns: whole groups, or parts of the only one with means over ranks.
template <typename Op>
Splits<Op> norm_splits(const View<Op>& node, int64_t groups, bool over_ranks) {
  graph::Split<Op> rows = split_alike<Op>(kS0), columns = split_alike<Op>(kS1);
  if constexpr (requires { rows.in.weight; }) {
    rows.in.weight = kR;
    columns.in.weight = node.attrs.shared ? kR : kS0;
  }
  if constexpr (requires { rows.out.dw; }) {
    rows.out.dw = kP;
    columns.out.dw = node.attrs.shared ? kP : kS0;
  }
  const Placement of_groups = over_ranks ? kR : kS1;
  if constexpr (requires { columns.in.rstd; }) columns.in.rstd = of_groups;
  if constexpr (requires { columns.out.rstd; }) columns.out.rstd = of_groups;
  if constexpr (requires { columns.in.means; }) columns.in.means = kR;
  if (groups == 1 && (!over_ranks || node.attrs.shared)) return {rows};
  return {rows, columns};
}

void gradient_gated_norm(GradientBuilder& builder, const View<GatedNorm>& node) {
  Graph& graph = builder.graph();
  const auto& in = node.in;
  const ValueId dy = builder.gradient_of(node.out.y), rstd = node.out.rstd;
  ValueId means = kNone;
  if (in.means) {
    const auto own =
        add<GatedMeans>(graph, {.x = in.x, .gate = in.gate, .dy = dy, .weight = in.weight}, node.attrs);
    means = graph::sum_over_ranks(graph, own.means);
  }
  const auto given = add<GatedNormGradInput>(
      graph, {.dy = dy, .x = in.x, .gate = in.gate, .rstd = rstd, .weight = in.weight, .means = means},
      node.attrs);
  builder.add_gradient(in.x, given.dx);
  builder.add_gradient(in.gate, given.dgate);
  if (!builder.wants(in.weight)) return;
  builder.weight_grad();
  add_into<GatedNormGradWeight>(graph, {.dy = dy, .x = in.x, .gate = in.gate, .rstd = rstd},
                                {.dw = builder.parameter_gradient(in.weight)}, node.attrs);
}

}  // namespace

const OpDef GatedNorm::def = define<GatedNorm>({
    .name = "gated_norm",
    .family = "elementwise",
    .infer = [](const auto& node) -> Outputs<GatedNorm> {
      require_gated(node);
      const int64_t groups = groups_of(node);
      require_weight(node, groups);
      return {.y = Spec::like(*node.in.x), .rstd = {DType::kF32, {node.in.x->shape[0], groups}}};
    },
    .cost = [](const auto& node) { return streamed(node, 14); },
    .placements = [](const auto& node, Axis) -> Splits<GatedNorm> {
      return norm_splits(node, groups_of(node), node.in.means.present());
    },
    .gradient = gradient_gated_norm,
    .in_place = {{"y", "x"}, {"y", "gate"}},
    .recompute = again<GatedNorm>,
});

const OpDef GatedNormGradInput::def = define<GatedNormGradInput>({
    .name = "gated_norm_grad_input",
    .family = "elementwise",
    .infer = [](const auto& node) -> Outputs<GatedNormGradInput> {
      require_gated(node);
      require_weight(node, groups_by_rstd(node));
      return {.dx = Spec::like(*node.in.x), .dgate = Spec::like(*node.in.gate)};
    },
    .cost = [](const auto& node) { return streamed(node, 24); },
    .placements = [](const auto& node, Axis) -> Splits<GatedNormGradInput> {
      return norm_splits(node, groups_by_rstd(node), node.in.means.present());
    },
    .in_place = {{"dx", "dy"}, {"dx", "x"}, {"dgate", "gate"}},
});

const OpDef GatedNormGradWeight::def = define<GatedNormGradWeight>({
    .name = "gated_norm_grad_weight",
    .family = "elementwise",
    .infer = [](const auto& node) -> Outputs<GatedNormGradWeight> {
      require_gated(node);
      const int64_t groups = groups_by_rstd(node), width = node.in.x->shape[1];
      return {.dw = {DType::kF32, {node.attrs.shared ? width / groups : width}}};
    },
    .cost = [](const auto& node) { return streamed(node, 14); },
    .placements = [](const auto& node, Axis) -> Splits<GatedNormGradWeight> {
      const int64_t groups = groups_by_rstd(node);
      return norm_splits(node, groups, groups == 1);
    },
});

const OpDef GatedMeans::def = define<GatedMeans>({
    .name = "gated_means",
    .family = "elementwise",
    .infer = [](const auto& node) -> Outputs<GatedMeans> {
      require_gated(node);
      const auto& in = node.in;
      require(node, in.dy.present() == in.weight.present(), "the gradient and the weight come together");
      require(node, !in.weight || in.weight->shape == Shape{in.x->shape[1]},
              "the weight must have one element a column");
      return {.means = {DType::kF32, {in.x->shape[0], 1}}};
    },
    .cost = [](const auto& node) { return streamed(node, 12); },
    .placements = [](const auto&, Axis) -> Splits<GatedMeans> {
      graph::Split<GatedMeans> rows = split_alike<GatedMeans>(kS0), columns = split_alike<GatedMeans>(kS1);
      rows.in.weight = kR;
      columns.in.weight = kS0;
      columns.out.means = kP;
      return {rows, columns};
    },
});

ValueId gated_norm(Graph& graph, ValueId x, ValueId gate, ValueId weight, GatedNormAttrs attrs) {
  const int64_t width = graph.value(x).shape[1];
  attrs.shared = graph.value(weight).shape[0] != width;
  ValueId means = kNone;
  if (!attrs.shared && attrs.group == width && graph::is_sharded(graph, graph.value(weight))) {
    const auto own = add<GatedMeans>(graph, {.x = x, .gate = gate}, attrs);
    means = graph::sum_over_ranks(graph, own.means);
  }
  return add<GatedNorm>(graph, {.x = x, .gate = gate, .weight = weight, .means = means}, attrs).y;
}

}  // namespace strata::ops
