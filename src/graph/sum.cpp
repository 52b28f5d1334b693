#include "graph/sum.h"

#include "graph/typed_op.h"

namespace strata::graph {

const OpDef Add::def = define<Add>({
    .name = "add",
    .family = "elementwise",
    .infer = [](const auto& node) -> Add::Out<Specs> {
      const Value &a = *node.in.a, &b = *node.in.b;
      if (a.shape != b.shape || a.dtype != b.dtype)
        shape_error(node.untyped(), "both terms must have the same shape and dtype");
      return {.sum = Spec::like(a)};
    },
    .cost = [](const auto& node) -> Cost {
      return {static_cast<double>(node.out.sum->shape.elements()), streamed_bytes(node.untyped())};
    },
    .placements =
        [](const auto& node, Axis) {
          std::vector<Split<Add>> splits;
          const auto all = [&](Placement one) { splits.push_back({{.a = one, .b = one}, {.sum = one}}); };
          for (int dim = 0; dim < node.in.a->shape.rank(); ++dim) all(Placement::sharded(dim));
          all(Placement::partial());
          return splits;
        },
    .gradient =
        [](GradientBuilder& builder, const auto& node) {
          const ValueId dy = builder.gradient_of(node.out.sum);
          builder.add_gradient(node.in.a, dy);
          builder.add_gradient(node.in.b, dy);
        },
    .in_place = {{"sum", "a"}, {"sum", "b"}},
});

ValueId add_sum(Graph& graph, ValueId a, ValueId b) {
  return add<Add>(graph, {.a = a, .b = b}).sum;
}

}  // namespace strata::graph
