#include "ops/jitter.h"

#include "ops/rules.h"

namespace strata::ops {

using graph::OpDef;

namespace {

std::vector<ValueSpec> infer(const NodeView& view) {
  const Value &x = view.in(Jitter::kX), &samples = view.in(Jitter::kSamples);
  require(view, x.dtype == DType::kF32 && x.shape.rank() == 2, "x must be f32[N, d]");
  require(view,
          samples.dtype == DType::kI32 && samples.shape.rank() == 1 && x.shape[0] % samples.shape[0] == 0,
          "samples must be i32, one for equally many rows each");
  return {{"y", x.dtype, x.shape}};
}
Cost cost(const NodeView& view) {
  return streamed(view, 40);
}
std::vector<PlacementOption> placements(const NodeView&, int) {
  return {{{kS0, kS0}, {kS0}}};
}
void gradient(GradientBuilder& builder, const Node& node) {
  const ValueId x = node.inputs[Jitter::kX];
  if (!builder.wants(x)) return;
  builder.add_gradient(
      x, builder.graph().add_node(
             kJitter, {builder.gradient_of(node.outputs[Jitter::kY]), node.inputs[Jitter::kSamples]},
             node.attrs)[0]);
}

}  // namespace

const OpDef kJitter{"jitter", "elementwise", infer, cost, placements, gradient};

ValueId jitter(Graph& graph, ValueId x, ValueId samples, const JitterAttrs& attrs) {
  return graph.add_node(kJitter, {x, samples}, attrs)[0];
}

}  // namespace strata::ops
