#include "ops/jitter.h"

#include "ops/rules.h"

namespace strata::ops {

using graph::OpDef;

namespace {

std::vector<ValueSpec> infer(const NodeView& view) {
  const Value &x = view.in(Jitter::kX), &places = view.in(Jitter::kPlaces);
  require(view, x.dtype == DType::kF32 && x.shape.rank() == 2, "x must be f32[N, d]");
  require(view, places.dtype == DType::kI32 && places.shape == Shape{x.shape[0], 2},
          "places must be i32[N, 2]");
  return {{"y", x.dtype, x.shape}};
}
Cost cost(const NodeView& view) {
  return streamed(view, 40);
}
std::vector<PlacementOption> placements(const NodeView&, Axis) {
  return {{{kS0, kS0}, {kS0}}};
}
void gradient(GradientBuilder& builder, const Node& node) {
  const ValueId x = node.inputs[Jitter::kX];
  if (!builder.wants(x)) return;
  builder.add_gradient(
      x, builder.graph().add_node(
             kJitter, {builder.gradient_of(node.outputs[Jitter::kY]), node.inputs[Jitter::kPlaces]},
             node.attrs)[0]);
}

std::vector<ValueSpec> infer_places(const NodeView& view) {
  const Value& samples = view.in(SamplePlaces::kSamples);
  require(view, samples.dtype == DType::kI32 && samples.shape.rank() == 1, "samples must be i32[sequences]");
  return {{"places", DType::kI32, {samples.shape[0] * view.attrs<SamplePlacesAttrs>().rows, 2}}};
}
Cost cost_places(const NodeView& view) {
  return streamed(view, 1);
}
std::vector<PlacementOption> placements_places(const NodeView&, Axis) {
  return {{{kS0}, {kS0}}};
}

}  // namespace

const OpDef kJitter{"jitter", "elementwise", infer, cost, placements, gradient};
const OpDef kSamplePlaces{"sample_places", "elementwise", infer_places, cost_places, placements_places};

ValueId jitter(Graph& graph, ValueId x, ValueId places, const JitterAttrs& attrs) {
  return graph.add_node(kJitter, {x, places}, attrs)[0];
}

ValueId sample_places(Graph& graph, ValueId samples, int64_t rows) {
  return graph.add_node(kSamplePlaces, {samples}, SamplePlacesAttrs{rows})[0];
}

}  // namespace strata::ops
