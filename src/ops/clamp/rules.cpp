#include "ops/rules.h"
#include "ops/clamp/clamp.h"

namespace strata::ops {

const OpDef Clamp::def = define<Clamp>({
    .name = "clamp",
    .family = "elementwise",
    .infer = [](const auto& node) -> Outputs<Clamp> { return {.y = Spec::like(*node.in.x)}; },
    .cost = [](const auto& node) { return streamed(node, 2); },
    .placements = [](const auto&, Axis) -> Splits<Clamp> {
      return {{{.x = kS0}, {.y = kS0}}, {{.x = kS1}, {.y = kS1}}};
    },
    .gradient =
        [](GradientBuilder& builder, const auto& node) {
          const ValueId dy = builder.gradient_of(node.out.y);
          builder.add_gradient(node.in.x,
                               add<ClampGrad>(builder.graph(), {.dy = dy, .x = node.in.x}, node.attrs).dx);
        },
    .in_place = {{"y", "x"}},
    .recompute = again<Clamp>,
});

const OpDef ClampGrad::def = define<ClampGrad>({
    .name = "clamp_grad",
    .family = "elementwise",
    .infer = [](const auto& node) -> Outputs<ClampGrad> {
      require(node, node.in.dy->shape == node.in.x->shape, "gradient and input must have one shape");
      return {.dx = Spec::like(*node.in.x)};
    },
    .cost = [](const auto& node) { return streamed(node, 2); },
    .placements = [](const auto&, Axis) -> Splits<ClampGrad> {
      return {{{.dy = kS0, .x = kS0}, {.dx = kS0}}, {{.dy = kS1, .x = kS1}, {.dx = kS1}}};
    },
    .in_place = {{"dx", "dy"}, {"dx", "x"}},
});

const OpDef ClampedGated::def = define<ClampedGated>({
    .name = "clamped_gated",
    .family = "elementwise",
    .infer = [](const auto& node) -> Outputs<ClampedGated> {
      const Value& gate_up = *node.in.gate_up;
      require(node, gate_up.shape.rank() == 2 && gate_up.shape[1] % 2 == 0,
              "the input must be [N, gate | up]");
      return {.y = {gate_up.dtype, {gate_up.shape[0], gate_up.shape[1] / 2}}};
    },
    .cost = [](const auto& node) { return streamed(node, 8); },
    .placements = [](const auto&, Axis) -> Splits<ClampedGated> {
      return {{{.gate_up = kS0}, {.y = kS0}}, {{.gate_up = kS1}, {.y = kS1}}};
    },
    .gradient =
        [](GradientBuilder& builder, const auto& node) {
          const ValueId dy = builder.gradient_of(node.out.y);
          builder.add_gradient(
              node.in.gate_up,
              add<ClampedGatedGrad>(builder.graph(), {.dy = dy, .gate_up = node.in.gate_up}, node.attrs)
                  .d_gate_up);
        },
    .recompute = again<ClampedGated>,
});

const OpDef ClampedGatedGrad::def = define<ClampedGatedGrad>({
    .name = "clamped_gated_grad",
    .family = "elementwise",
    .infer = [](const auto& node) -> Outputs<ClampedGatedGrad> {
      const Value &dy = *node.in.dy, &gate_up = *node.in.gate_up;
      require(node, gate_up.shape == Shape({dy.shape[0], 2 * dy.shape[1]}),
              "the gradient must be half as wide as the input");
      return {.d_gate_up = Spec::like(gate_up)};
    },
    .cost = [](const auto& node) { return streamed(node, 8); },
    .placements = [](const auto&, Axis) -> Splits<ClampedGatedGrad> {
      return {{{.dy = kS0, .gate_up = kS0}, {.d_gate_up = kS0}},
              {{.dy = kS1, .gate_up = kS1}, {.d_gate_up = kS1}}};
    },
    .in_place = {{"d_gate_up", "gate_up"}},
});

}  // namespace strata::ops
