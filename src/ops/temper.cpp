#include "ops/temper.h"

#include "ops/rules.h"

namespace strata::ops {

using graph::OpDef;

namespace {

std::vector<ValueSpec> infer(const NodeView& view) {
  const Value& qkv = view.in(Temper::kQkv);
  require(view, qkv.shape.rank() == 2 && qkv.segments.size() == 3, "qkv must be [N, q | k | v]");
  require(view,
          view.in(Temper::kPositions).shape == Shape{qkv.shape[0]} &&
              view.in(Temper::kPositions).dtype == DType::kI32,
          "positions must be i32[N]");
  require(view, view.attrs<TemperAttrs>().floor > 0, "the floor must be at least one token");
  return {{"y", qkv.dtype, qkv.shape, qkv.segments}};
}
Cost cost(const NodeView& view) {
  return streamed(view, 1);
}
std::vector<PlacementOption> placements(const NodeView&, Axis) {
  return {{{kS0, kS0}, {kS0}}, {{kS1, kR}, {kS1}}};
}
void gradient(GradientBuilder& builder, const Node& node) {
  const ValueId dy = builder.gradient_of(node.outputs[Temper::kY]);
  builder.add_gradient(
      node.inputs[Temper::kQkv],
      builder.graph().add_node(kTemper, {dy, node.inputs[Temper::kPositions]}, node.attrs)[0]);
}

std::vector<ValueSpec> infer_chunks(const NodeView& view) {
  const Value& positions = view.in(ChunkBegins::kPositions);
  require(view, positions.dtype == DType::kI32 && positions.shape.rank() == 1, "positions must be i32[N]");
  if (view.has(ChunkBegins::kBegins)) {
    require(view, view.in(ChunkBegins::kBegins).shape == positions.shape,
            "there must be one begin for each position");
  }
  require(view, view.attrs<ChunkAttrs>().size > 0, "a chunk must have tokens");
  return {{"begins", DType::kI32, positions.shape}};
}
std::vector<PlacementOption> placements_chunks(const NodeView&, Axis) {
  return {{{kS0, kS0}, {kS0}}};
}

}  // namespace

const OpDef kTemper{"temper", "elementwise", infer, cost, placements, gradient, {{0, 0}}};
const OpDef kChunkBegins{"chunk_begins", "elementwise", infer_chunks, cost, placements_chunks};

ValueId temper(Graph& graph, ValueId qkv, ValueId positions, const TemperAttrs& attrs) {
  return graph.add_node(kTemper, {qkv, positions}, attrs)[0];
}
ValueId chunk_begins(Graph& graph, ValueId positions, ValueId begins, int64_t size) {
  return graph.add_node(kChunkBegins, {positions, begins}, ChunkAttrs{size})[0];
}

}  // namespace strata::ops
