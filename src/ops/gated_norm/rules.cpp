#include "ops/rules.h"
#include "graph/reshard.h"
#include "ops/gated_norm/gated_norm.h"

namespace strata::ops {
namespace {

// Whether one weight serves all groups.
template <typename NodeOf>
bool is_shared(const NodeOf& node) {
  return node.in.weight->shape[0] < node.in.x->shape[1] && node.in.weight->shape[0] == node.attrs.group;
}

template <typename NodeOf>
int64_t groups_of(const NodeOf& node) {
  return node.in.means ? 1 : node.in.x->shape[1] / node.attrs.group;
}

template <typename NodeOf>
void require_gated_norm(const NodeOf& node) {
  const Value &x = *node.in.x, &gate = *node.in.gate;
  require(node, x.shape.rank() == 2 && gate.shape == x.shape && gate.dtype == x.dtype,
          "x and gate must be [N, D] of one type");
  const int64_t width = x.shape[1], group = node.attrs.group, weights = node.in.weight->shape[0];
  require(node, node.in.means || (group > 0 && width % group == 0), "D must be a multiple of the group");
  require(node, weights == width || (!node.in.means && weights == group),
          "the weight must be [D] or [group]");
  if (node.in.means) require(node, node.in.means->shape == Shape{x.shape[0], 1}, "means must be f32[N, 1]");
}

}  // namespace

const OpDef GatedNorm::def = define<GatedNorm>({
    .name = "gated_norm",
    .family = "elementwise",
    .infer = [](const auto& node) -> Outputs<GatedNorm> {
      require_gated_norm(node);
      return {.y = Spec::like(*node.in.x), .rstd = {DType::kF32, {node.in.x->shape[0], groups_of(node)}}};
    },
    .cost = [](const auto& node) { return streamed(node, 14); },
    .placements = [](const auto& node, Axis) -> Splits<GatedNorm> {
      Splits<GatedNorm> splits{
          {{.x = kS0, .gate = kS0, .weight = kR, .means = kS0}, {.y = kS0, .rstd = kS0}}};
      if (node.in.means) {
        splits.push_back({{.x = kS1, .gate = kS1, .weight = kS0, .means = kR}, {.y = kS1, .rstd = kR}});
      } else if (groups_of(node) > 1) {
        splits.push_back(
            {{.x = kS1, .gate = kS1, .weight = is_shared(node) ? kR : kS0}, {.y = kS1, .rstd = kS1}});
      }
      return splits;
    },
    .gradient =
        [](GradientBuilder& builder, const auto& node) {
          Graph& graph = builder.graph();
          const auto& in = node.in;
          const ValueId dy = builder.gradient_of(node.out.y), rstd = node.out.rstd;
          ValueId means = kNone;
          if (in.means != kNone) {
            const auto own = add<GatedMeans>(
                graph, {.x = in.x, .gate = in.gate, .dy = dy, .weight = in.weight}, node.attrs);
            means = graph::sum_over_ranks(graph, own.means);
          }
          const auto gradients = add<GatedNormGradInput>(
              graph,
              {.dy = dy, .x = in.x, .gate = in.gate, .weight = in.weight, .rstd = rstd, .means = means},
              node.attrs);
          builder.add_gradient(in.x, gradients.dx);
          builder.add_gradient(in.gate, gradients.dgate);
          if (!builder.wants(in.weight)) return;
          builder.weight_grad();
          GatedNormGradWeightAttrs attrs{node.attrs};
          attrs.is_shared = graph.value(in.weight).shape[0] == node.attrs.group &&
                            graph.value(in.x).shape[1] > node.attrs.group;
          add_into<GatedNormGradWeight>(graph, {.dy = dy, .x = in.x, .gate = in.gate, .rstd = rstd},
                                        {.dw = builder.parameter_gradient(in.weight)}, attrs);
        },
    .recompute = again<GatedNorm>,
});

const OpDef GatedNormGradInput::def = define<GatedNormGradInput>({
    .name = "gated_norm_grad_input",
    .family = "elementwise",
    .infer = [](const auto& node) -> Outputs<GatedNormGradInput> {
      require_gated_norm(node);
      return {.dx = Spec::like(*node.in.x), .dgate = Spec::like(*node.in.gate)};
    },
    .cost = [](const auto& node) { return streamed(node, 24); },
    .placements = [](const auto& node, Axis) -> Splits<GatedNormGradInput> {
      Splits<GatedNormGradInput> splits{
          {{.dy = kS0, .x = kS0, .gate = kS0, .weight = kR, .rstd = kS0, .means = kS0},
           {.dx = kS0, .dgate = kS0}}};
      if (node.in.means) {
        splits.push_back({{.dy = kS1, .x = kS1, .gate = kS1, .weight = kS0, .rstd = kR, .means = kR},
                          {.dx = kS1, .dgate = kS1}});
      } else if (groups_of(node) > 1) {
        splits.push_back(
            {{.dy = kS1, .x = kS1, .gate = kS1, .weight = is_shared(node) ? kR : kS0, .rstd = kS1},
             {.dx = kS1, .dgate = kS1}});
      }
      return splits;
    },
    .in_place = {{"dx", "dy"}, {"dgate", "gate"}},
});

const OpDef GatedNormGradWeight::def = define<GatedNormGradWeight>({
    .name = "gated_norm_grad_weight",
    .family = "elementwise",
    .infer = [](const auto& node) -> Outputs<GatedNormGradWeight> {
      return {.dw = {DType::kF32, {node.attrs.is_shared ? node.attrs.group : node.in.x->shape[1]}}};
    },
    .cost = [](const auto& node) { return streamed(node, 12); },
    .placements = [](const auto& node, Axis) -> Splits<GatedNormGradWeight> {
      Splits<GatedNormGradWeight> splits{{{.dy = kS0, .x = kS0, .gate = kS0, .rstd = kS0}, {.dw = kP}}};
      const bool one_group = node.in.rstd->shape[1] == 1;
      const auto dw = node.attrs.is_shared ? kP : kS0;
      splits.push_back({{.dy = kS1, .x = kS1, .gate = kS1, .rstd = one_group ? kR : kS1}, {.dw = dw}});
      return splits;
    },
});

const OpDef GatedMeans::def = define<GatedMeans>({
    .name = "gated_means",
    .family = "elementwise",
    .infer = [](const auto& node) -> Outputs<GatedMeans> {
      require(node, node.in.dy.present() == node.in.weight.present(),
              "the gradient and the weight come together");
      return {.means = {DType::kF32, {node.in.x->shape[0], 1}}};
    },
    .cost = [](const auto& node) { return streamed(node, 10); },
    .placements = [](const auto&, Axis) -> Splits<GatedMeans> {
      return {{{.x = kS0, .gate = kS0, .dy = kS0, .weight = kR}, {.means = kS0}},
              {{.x = kS1, .gate = kS1, .dy = kS1, .weight = kS0}, {.means = kP}}};
    },
});

ValueId gated_norm(Graph& graph, const GatedNormOperands& operands, const GatedNormAttrs& attrs) {
  const auto& [x, gate, weight] = operands;
  ValueId means = kNone;
  const bool has_one_group = graph.value(x).shape[1] == attrs.group;
  if (has_one_group && graph::is_sharded(graph, graph.value(weight)))
    means = graph::sum_over_ranks(graph, add<GatedMeans>(graph, {.x = x, .gate = gate}, attrs).means);
  return add<GatedNorm>(graph, {.x = x, .gate = gate, .weight = weight, .means = means}, attrs).y;
}

}  // namespace strata::ops
