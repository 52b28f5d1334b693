#include "ops/rules.h"
#include "ops/activation/activation.h"

namespace strata::ops {

const OpDef Activation::def = define<Activation>({
    .name = "activation",
    .family = "elementwise",
    .infer = [](const auto& node) -> Outputs<Activation> { return {.y = Spec::like(*node.in.x)}; },
    .cost = [](const auto& node) { return streamed(node, 8); },
    .placements = [](const auto&, Axis) -> Splits<Activation> {
      return {{{.x = kS0}, {.y = kS0}}, {{.x = kS1}, {.y = kS1}}};
    },
    .gradient =
        [](GradientBuilder& builder, const auto& node) {
          const ValueId dy = builder.gradient_of(node.out.y);
          builder.add_gradient(
              node.in.x, add<ActivationGrad>(builder.graph(), {.dy = dy, .x = node.in.x}, node.attrs).dx);
        },
    .recompute = again<Activation>,
});

const OpDef ActivationGrad::def = define<ActivationGrad>({
    .name = "activation_grad",
    .family = "elementwise",
    .infer = [](const auto& node) -> Outputs<ActivationGrad> { return {.dx = Spec::like(*node.in.x)}; },
    .cost = [](const auto& node) { return streamed(node, 8); },
    .placements = [](const auto&, Axis) -> Splits<ActivationGrad> {
      return {{{.dy = kS0, .x = kS0}, {.dx = kS0}}, {{.dy = kS1, .x = kS1}, {.dx = kS1}}};
    },
    .in_place = {{"dx", "x"}, {"dx", "dy"}},
});

ValueId activation(Graph& graph, ValueId x, ActivationKind kind) {
  return add<Activation>(graph, {.x = x}, {kind}).y;
}

const OpDef Gated::def = define<Gated>({
    .name = "gated",
    .family = "elementwise",
    .infer = [](const auto& node) -> Outputs<Gated> {
      const Value& gate_up = *node.in.gate_up;
      require(node, gate_up.shape.rank() == 2 && gate_up.shape[1] % 2 == 0,
              "the input must be [N, gate | up]");
      return {.y = {gate_up.dtype, {gate_up.shape[0], gate_up.shape[1] / 2}}};
    },
    .cost = [](const auto& node) { return streamed(node, 8); },
    .placements = [](const auto&, Axis) -> Splits<Gated> {
      return {{{.gate_up = kS0}, {.y = kS0}}, {{.gate_up = kS1}, {.y = kS1}}};
    },
    .gradient =
        [](GradientBuilder& builder, const auto& node) {
          const ValueId dy = builder.gradient_of(node.out.y), gate_up = node.in.gate_up;
          builder.add_gradient(
              gate_up, add<GatedGrad>(builder.graph(), {.dy = dy, .gate_up = gate_up}, node.attrs).d_gate_up);
        },
    .recompute = again<Gated>,
});

const OpDef GatedGrad::def = define<GatedGrad>({
    .name = "gated_grad",
    .family = "elementwise",
    .infer = [](const auto& node) -> Outputs<GatedGrad> {
      return {.d_gate_up = Spec::like(*node.in.gate_up)};
    },
    .cost = [](const auto& node) { return streamed(node, 8); },
    .placements = [](const auto&, Axis) -> Splits<GatedGrad> {
      return {{{.dy = kS0, .gate_up = kS0}, {.d_gate_up = kS0}},
              {{.dy = kS1, .gate_up = kS1}, {.d_gate_up = kS1}}};
    },
    .in_place = {{"d_gate_up", "gate_up"}},
});

ValueId gated(Graph& graph, ValueId gate_up, ActivationKind kind) {
  return add<Gated>(graph, {.gate_up = gate_up}, {kind}).y;
}

}  // namespace strata::ops
