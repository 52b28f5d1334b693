#include "ops/rules.h"
#include "graph/reshard.h"
#include "graph/shard.h"
#include "ops/qk_norm/qk_norm.h"

namespace strata::ops {
namespace {

template <typename Op>
void require_means(const View<Op>& node) {
  require(node, !node.in.means || node.in.means->shape == Shape{node.in.qkv->shape[0], 2},
          "means must be f32[N, 2]");
}

Outputs<QkNorm> infer_qk_norm(const View<QkNorm>& node) {
  require_means(node);
  const Value& qkv = *node.in.qkv;
  const auto groups_of = [&](size_t part, const Value& weight) {
    const int64_t width = weight.shape.rank() == 1 ? weight.shape[0] : 0;
    require(node, qkv.segments.size() == 3, "qkv must have the parts [q | k | v]");
    require(node, width > 0 && qkv.segments[part] % width == 0,
            "the weights must be as wide as a head or as the projection");
    return qkv.segments[part] / width;
  };
  const int64_t q_groups = groups_of(0, *node.in.q_weight), k_groups = groups_of(1, *node.in.k_weight);
  return {.y = Spec::like(qkv),
          .rstd = {DType::kF32, {qkv.shape[0], q_groups + k_groups}, {q_groups, k_groups}}};
}

// By heads only if each head is normalised separately.
template <typename Op>
bool by_head(const View<Op>& node) {
  return node.in.q_weight->shape[0] < node.in.qkv->segments[0];
}

QkNormAttrs attrs_of_means(const Value& qkv, QkNormAttrs attrs) {
  attrs.q_width = qkv.segments[0];
  attrs.k_width = qkv.segments[1];
  return attrs;
}

void gradient_qk_norm(GradientBuilder& builder, const View<QkNorm>& node) {
  Graph& graph = builder.graph();
  const auto& in = node.in;
  const ValueId dy = builder.gradient_of(node.out.y), rstd = node.out.rstd;
  const bool over_ranks = in.means.present();
  ValueId means = kNone;
  if (over_ranks) {
    const auto own =
        add<QkMeans>(graph, {.qkv = in.qkv, .dy = dy, .q_weight = in.q_weight, .k_weight = in.k_weight},
                     attrs_of_means(*in.qkv, node.attrs));
    means = graph::sum_over_ranks(graph, own.means);
  }
  builder.add_gradient(in.qkv, add<QkNormGradInput>(graph,
                                                    {.dy = dy,
                                                     .qkv = in.qkv,
                                                     .rstd = rstd,
                                                     .q_weight = in.q_weight,
                                                     .k_weight = in.k_weight,
                                                     .means = means},
                                                    node.attrs)
                                   .dx);
  if (!builder.wants(in.q_weight)) return;
  builder.weight_grad();
  QkNormAttrs attrs = node.attrs;
  attrs.q_width = over_ranks ? 0 : in.q_weight->shape[0];
  attrs.k_width = over_ranks ? 0 : in.k_weight->shape[0];
  add_into<QkNormGradWeight>(
      graph, {.dy = dy, .qkv = in.qkv, .rstd = rstd},
      {.dq = builder.parameter_gradient(in.q_weight), .dk = builder.parameter_gradient(in.k_weight)}, attrs);
}

}  // namespace

const OpDef QkNorm::def = define<QkNorm>({
    .name = "qk_norm",
    .family = "elementwise",
    .infer = infer_qk_norm,
    .cost = [](const auto& node) { return streamed(node, 5); },
    .placements = [](const auto& node, Axis) -> Splits<QkNorm> {
      Splits<QkNorm> splits{
          {{.qkv = kS0, .q_weight = kR, .k_weight = kR, .means = kS0}, {.y = kS0, .rstd = kS0}}};
      if (by_head(node))
        splits.push_back({{.qkv = kS1, .q_weight = kR, .k_weight = kR}, {.y = kS1, .rstd = kS1}});
      if (node.in.means)
        splits.push_back({{.qkv = kS1, .q_weight = kS0, .k_weight = kS0}, {.y = kS1, .rstd = kR}});
      return splits;
    },
    .gradient = gradient_qk_norm,
});

const OpDef QkNormGradInput::def = define<QkNormGradInput>({
    .name = "qk_norm_grad_input",
    .family = "elementwise",
    .infer = [](const auto& node) -> Outputs<QkNormGradInput> {
      require_means(node);
      return {.dx = Spec::like(*node.in.qkv)};
    },
    .cost = [](const auto& node) { return streamed(node, 8); },
    .placements = [](const auto& node, Axis) -> Splits<QkNormGradInput> {
      Splits<QkNormGradInput> splits{
          {{.dy = kS0, .qkv = kS0, .rstd = kS0, .q_weight = kR, .k_weight = kR, .means = kS0}, {.dx = kS0}}};
      if (by_head(node))
        splits.push_back({{.dy = kS1, .qkv = kS1, .rstd = kS1, .q_weight = kR, .k_weight = kR}, {.dx = kS1}});
      if (node.in.means)
        splits.push_back(
            {{.dy = kS1, .qkv = kS1, .rstd = kR, .q_weight = kS0, .k_weight = kS0}, {.dx = kS1}});
      return splits;
    },
    .in_place = {{"dx", "dy"}},
});

const OpDef QkNormGradWeight::def = define<QkNormGradWeight>({
    .name = "qk_norm_grad_weight",
    .family = "elementwise",
    .infer = [](const auto& node) -> Outputs<QkNormGradWeight> {
      const auto& parts = node.in.qkv->segments;
      const auto& [q_width, k_width] = std::pair{node.attrs.q_width, node.attrs.k_width};
      return {.dq = {DType::kF32, {q_width > 0 ? q_width : parts[0]}},
              .dk = {DType::kF32, {k_width > 0 ? k_width : parts[1]}}};
    },
    .cost = [](const auto& node) { return streamed(node, 8); },
    .placements = [](const auto& node, Axis) -> Splits<QkNormGradWeight> {
      Splits<QkNormGradWeight> splits{{{.dy = kS0, .qkv = kS0, .rstd = kS0}, {.dq = kP, .dk = kP}}};
      const int64_t q_width = node.attrs.q_width;
      if (q_width == 0) {
        splits.push_back({{.dy = kS1, .qkv = kS1, .rstd = kR}, {.dq = kS0, .dk = kS0}});
      } else if (q_width < node.in.qkv->segments[0]) {
        splits.push_back({{.dy = kS1, .qkv = kS1, .rstd = kS1}, {.dq = kP, .dk = kP}});
      }
      return splits;
    },
});

const OpDef QkMeans::def = define<QkMeans>({
    .name = "qk_means",
    .family = "elementwise",
    .infer = [](const auto& node) -> Outputs<QkMeans> {
      const auto& in = node.in;
      require(node, in.qkv->segments.size() == 3, "qkv must have the parts [q | k | v]");
      const bool with_dy = in.dy.present();
      require(node, with_dy == in.q_weight.present() && with_dy == in.k_weight.present(),
              "the gradient and both weights come together");
      return {.means = {DType::kF32, {in.qkv->shape[0], 2}}};
    },
    .cost = [](const auto& node) { return streamed(node, 3); },
    .placements = [](const auto&, Axis) -> Splits<QkMeans> {
      return {{{.qkv = kS0, .dy = kS0}, {.means = kS0}},
              {{.qkv = kS1, .dy = kS1, .q_weight = kS0, .k_weight = kS0}, {.means = kP}}};
    },
});

ValueId qk_norm(Graph& graph, ValueId qkv, ValueId q_weight, ValueId k_weight, double eps,
                double weight_offset) {
  const QkNormAttrs attrs{.eps = eps, .weight_offset = weight_offset};
  ValueId means = kNone;
  if (graph::is_sharded(graph, graph.value(q_weight))) {
    const auto own = add<QkMeans>(graph, {.qkv = qkv}, attrs_of_means(graph.value(qkv), attrs));
    means = graph::sum_over_ranks(graph, own.means);
  }
  return add<QkNorm>(graph, {.qkv = qkv, .q_weight = q_weight, .k_weight = k_weight, .means = means}, attrs)
      .y;
}

}  // namespace strata::ops
