#include "ops/rules.h"
#include "ops/gate/gate.h"

namespace strata::ops {

const OpDef Gate::def = define<Gate>({
    .name = "gate",
    .family = "elementwise",
    .infer = [](const auto& node) -> Outputs<Gate> {
      const Value &x = *node.in.x, &gate = *node.in.gate;
      require(node, x.shape.rank() == 2 && gate.shape == x.shape && gate.dtype == x.dtype,
              "x and gate must be [N, D] of one type");
      return {.y = Spec::like(x)};
    },
    .cost = [](const auto& node) { return streamed(node, 8); },
    .placements = [](const auto&, Axis) -> Splits<Gate> {
      return {{{.x = kS0, .gate = kS0}, {.y = kS0}}, {{.x = kS1, .gate = kS1}, {.y = kS1}}};
    },
    .gradient =
        [](GradientBuilder& builder, const auto& node) {
          const auto& in = node.in;
          const auto gradients =
              add<GateGrad>(builder.graph(),
                            {.dy = builder.gradient_of(node.out.y), .x = in.x, .gate = in.gate}, node.attrs);
          builder.add_gradient(in.x, gradients.dx);
          builder.add_gradient(in.gate, gradients.dgate);
        },
    .recompute = again<Gate>,
});

const OpDef GateGrad::def = define<GateGrad>({
    .name = "gate_grad",
    .family = "elementwise",
    .infer = [](const auto& node) -> Outputs<GateGrad> {
      return {.dx = Spec::like(*node.in.x), .dgate = Spec::like(*node.in.gate)};
    },
    .cost = [](const auto& node) { return streamed(node, 12); },
    .placements = [](const auto&, Axis) -> Splits<GateGrad> {
      return {{{.dy = kS0, .x = kS0, .gate = kS0}, {.dx = kS0, .dgate = kS0}},
              {{.dy = kS1, .x = kS1, .gate = kS1}, {.dx = kS1, .dgate = kS1}}};
    },
    .in_place = {{"dx", "x"}, {"dgate", "gate"}},
});

}  // namespace strata::ops
