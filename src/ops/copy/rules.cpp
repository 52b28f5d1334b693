#include "ops/copy/copy.h"

#include "ops/rules.h"

namespace strata::ops {

const OpDef Copy::def = define<Copy>({
    .name = "copy",
    .family = "elementwise",
    .infer = [](const auto& node) -> Outputs<Copy> { return {.copy = Spec::like(*node.in.x)}; },
    .cost = [](const auto& node) { return streamed(node, 0); },
    .placements = [](const auto& node, Axis) -> Splits<Copy> {
      Splits<Copy> splits{{{.x = kS0}, {.copy = kS0}}};
      if (node.in.x->shape.rank() > 1) splits.push_back({{.x = kS1}, {.copy = kS1}});
      return splits;
    },
    // A copy too: a stage without layers sends on the gradient that it receives.
    .gradient =
        [](GradientBuilder& builder, const auto& node) {
          builder.add_gradient(node.in.x, copy(builder.graph(), builder.gradient_of(node.out.copy)));
        },
});

ValueId copy(Graph& graph, ValueId x) {
  return add<Copy>(graph, {.x = x}).copy;
}

}  // namespace strata::ops
