#include "ops/ops.h"
#include "ops/rules.h"

namespace strata::ops {
namespace {

int64_t distances(const NodeView& view) {
  const auto& attrs = view.attrs<RelativeBiasAttrs>();
  return attrs.last - attrs.first + 1;
}

// Half of the buckets of one direction hold one distance each: there must be one, and the others lie beyond.
void require_buckets(const NodeView& view, int64_t buckets) {
  const bool both = view.attrs<RelativeBiasAttrs>().bidirectional;
  const int64_t exact = buckets / (both ? 4 : 2);
  require(view, exact >= 1, both ? "there must be at least 4 buckets" : "there must be at least 2 buckets");
  require(view, view.attrs<RelativeBiasAttrs>().max_distance > exact,
          "max_distance must lie beyond the distances that have a bucket each");
  require(view, distances(view) >= 1, "the last distance must not lie before the first");
}

std::vector<ValueSpec> infer(const NodeView& view) {
  const Value& table = view.in(RelativeBias::kTable);
  require(view, table.shape.rank() == 2 && table.dtype == DType::kF32,
          "the table must be f32[buckets, heads]");
  require_buckets(view, table.shape[0]);
  return {{"bias", DType::kF32, {table.shape[1], distances(view)}}};
}

Cost cost(const NodeView& view) {
  return streamed(view, 1);
}

std::vector<PlacementOption> placements(const NodeView&, Axis) {
  return {{{kS1}, {kS0}}};
}

void gradient(GradientBuilder& builder, const Node& node) {
  const ValueId dbias = builder.gradient_of(node.outputs[RelativeBias::kBias]);
  builder.weight_grad();
  auto attrs = node.attrs.as<RelativeBiasAttrs>();
  attrs.buckets = builder.graph().value(node.inputs[RelativeBias::kTable]).shape[0];
  builder.graph().add_node_into(kRelativeBiasGrad, {dbias},
                                {builder.parameter_gradient(node.inputs[RelativeBias::kTable])}, attrs);
}

std::vector<ValueSpec> infer_grad(const NodeView& view) {
  require_buckets(view, view.attrs<RelativeBiasAttrs>().buckets);
  require(view,
          view.in(RelativeBiasGrad::kDbias).shape.rank() == 2 &&
              view.in(RelativeBiasGrad::kDbias).shape[1] == distances(view),
          "the gradient must have one column a distance");
  return {{"dtable",
           DType::kF32,
           {view.attrs<RelativeBiasAttrs>().buckets, view.in(RelativeBiasGrad::kDbias).shape[0]}}};
}

std::vector<PlacementOption> placements_grad(const NodeView&, Axis) {
  return {{{kS0}, {kS1}}, {{kP}, {kP}}};
}

}  // namespace

const OpDef kRelativeBias{"relative_bias", "elementwise", infer, cost, placements, gradient};
const OpDef kRelativeBiasGrad{"relative_bias_grad", "elementwise", infer_grad, cost, placements_grad};

ValueId relative_bias(Graph& graph, ValueId table, const RelativeBiasAttrs& attrs) {
  return graph.add_node(kRelativeBias, {table}, attrs)[0];
}

}  // namespace strata::ops
