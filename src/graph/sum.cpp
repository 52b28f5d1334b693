#include "graph/sum.h"

#include "graph/differentiate.h"

namespace strata::graph {
namespace {

std::vector<ValueSpec> infer(const NodeView& view) {
  if (view.in(0).shape != view.in(1).shape || view.in(0).dtype != view.in(1).dtype) {
    shape_error(view, "both terms must have the same shape and dtype");
  }
  return {{"sum", view.in(0).dtype, view.in(0).shape, view.in(0).segments}};
}

Cost cost(const NodeView& view) {
  return {static_cast<double>(view.out(0).shape.elements()), streamed_bytes(view)};
}

std::vector<PlacementOption> placements(const NodeView& view, Axis) {
  std::vector<PlacementOption> options;
  for (int dim = 0; dim < view.in(0).shape.rank(); ++dim) {
    const auto shard = Placement::sharded(dim);
    options.push_back({{shard, shard}, {shard}});
  }
  options.push_back({{Placement::partial(), Placement::partial()}, {Placement::partial()}});
  return options;
}

void gradient(GradientBuilder& builder, const Node& node) {
  const ValueId dy = builder.gradient_of(node.outputs[0]);
  builder.add_gradient(node.inputs[0], dy);
  builder.add_gradient(node.inputs[1], dy);
}

}  // namespace

const OpDef kAdd{"add", "elementwise", infer, cost, placements, gradient, {{0, 0}, {0, 1}}};

ValueId add_sum(Graph& graph, ValueId a, ValueId b) {
  return graph.add_node(kAdd, {a, b})[0];
}

}  // namespace strata::graph
