#include "ops/rules.h"
#include "ops/gate/gate.h"

namespace strata::ops {
namespace {

template <typename Op>
void require_gate(const View<Op>& node) {
  const Value &x = *node.in.x, &gate = *node.in.gate;
  require(node, gate.shape == x.shape && gate.dtype == x.dtype,
          "x and its gate must have the same shape and dtype");
}

}  // namespace

const OpDef Gate::def = define<Gate>({
    .name = "gate",
    .family = "elementwise",
    .infer = [](const auto& node) -> Outputs<Gate> {
      require_gate(node);
      return {.y = Spec::like(*node.in.x)};
    },
    .cost = [](const auto& node) { return streamed(node, 8); },
    .placements = [](const auto&, Axis) -> Splits<Gate> {
      return {split_alike<Gate>(kS0), split_alike<Gate>(kS1)};
    },
    .gradient =
        [](GradientBuilder& builder, const auto& node) {
          const auto& in = node.in;
          const ValueId dy = builder.gradient_of(node.out.y);
          const auto given =
              add<GateGrad>(builder.graph(), {.dy = dy, .x = in.x, .gate = in.gate}, node.attrs);
          builder.add_gradient(in.x, given.dx);
          builder.add_gradient(in.gate, given.dgate);
        },
    .in_place = {{"y", "x"}, {"y", "gate"}},
    .recompute = again<Gate>,
});

const OpDef GateGrad::def = define<GateGrad>({
    .name = "gate_grad",
    .family = "elementwise",
    .infer = [](const auto& node) -> Outputs<GateGrad> {
      require_gate(node);
      require(node, node.in.dy->shape == node.in.x->shape, "gradient and x must have the same shape");
      return {.dx = Spec::like(*node.in.x), .dgate = Spec::like(*node.in.gate)};
    },
    .cost = [](const auto& node) { return streamed(node, 10); },
    .placements = [](const auto&, Axis) -> Splits<GateGrad> {
      return {split_alike<GateGrad>(kS0), split_alike<GateGrad>(kS1)};
    },
    .in_place = {{"dx", "dy"}, {"dx", "x"}, {"dgate", "gate"}},
});

ValueId gate(Graph& graph, ValueId x, ValueId by, GateKind kind) {
  return add<Gate>(graph, {.x = x, .gate = by}, {kind}).y;
}

}  // namespace strata::ops
