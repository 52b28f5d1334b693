#include "ops/ops.h"
#include "ops/rules.h"

namespace strata::ops {
namespace {

std::vector<ValueSpec> infer(const NodeView& view) {
  require(view,
          view.in(Embedding::kTokens).dtype == DType::kI32 && view.in(Embedding::kTokens).shape.rank() == 1,
          "tokens must be i32[N]");
  require(view, view.in(Embedding::kTable).shape.rank() == 2, "the table must be [V, D]");
  require(view, view.has(Embedding::kPositions) == view.has(Embedding::kPositionTable),
          "positions and their table come together");
  if (view.has(Embedding::kPositions)) {
    require(view, view.in(Embedding::kPositions).shape == view.in(Embedding::kTokens).shape,
            "there must be one position a token");
    require(view, view.in(Embedding::kPositionTable).shape[1] == view.in(Embedding::kTable).shape[1],
            "both tables must be equally wide");
  }
  const DType dtype = view.attrs<EmbeddingAttrs>().dtype;
  return {{"x", dtype, {view.in(Embedding::kTokens).shape[0], view.in(Embedding::kTable).shape[1]}}};
}

Cost cost(const NodeView& view) {
  // Only the rows that are looked up are read.
  const double rows = static_cast<double>(view.out(Embedding::kX).shape.elements());
  return {view.has(Embedding::kPositions) ? rows : 0,
          rows * (view.has(Embedding::kPositions) ? 8 : 4) +
              static_cast<double>(view.out(Embedding::kX).bytes())};
}

std::vector<PlacementOption> placements(const NodeView&, int) {
  return {{{kS0, kR, kS0, kR}, {kS0}}, {{kR, kS1, kR, kS1}, {kS1}}};
}

void gradient(GradientBuilder& builder, const Node& node) {
  const auto& attrs = node.attrs.as<EmbeddingAttrs>();
  const ValueId dy = builder.gradient_of(node.outputs[Embedding::kX]);
  builder.weight_grad();
  builder.graph().add_node_into(
      kEmbeddingGrad, {dy, node.inputs[Embedding::kTokens]},
      {builder.parameter_gradient(node.inputs[Embedding::kTable])},
      EmbeddingGradAttrs{builder.graph().value(node.inputs[Embedding::kTable]).shape[0], attrs.scale,
                         attrs.padding_id});
  if (node.inputs[Embedding::kPositions] != kNone) {
    builder.graph().add_node_into(
        kEmbeddingGrad, {dy, node.inputs[Embedding::kPositions]},
        {builder.parameter_gradient(node.inputs[Embedding::kPositionTable])},
        EmbeddingGradAttrs{.rows = builder.graph().value(node.inputs[Embedding::kPositionTable]).shape[0]});
  }
}

std::vector<ValueSpec> infer_grad(const NodeView& view) {
  return {
      {"dtable", DType::kF32, {view.attrs<EmbeddingGradAttrs>().rows, view.in(EmbeddingGrad::kDy).shape[1]}}};
}

// The table is cleared; then rows of it are read and written.
Cost cost_grad(const NodeView& view) {
  const double rows = static_cast<double>(view.in(EmbeddingGrad::kDy).shape.elements());
  const double table = static_cast<double>(view.out(EmbeddingGrad::kDtable).bytes());
  return {rows, table + rows * 8 + static_cast<double>(view.in(EmbeddingGrad::kDy).bytes()), table};
}

std::vector<PlacementOption> placements_grad(const NodeView&, int) {
  return {{{kS0, kS0}, {kP}}, {{kS1, kR}, {kS1}}};
}

}  // namespace

const OpDef kEmbedding{"embedding", "embedding", infer, cost, placements, gradient};
const OpDef kEmbeddingGrad{"embedding_grad", "embedding", infer_grad, cost_grad, placements_grad};

ValueId embedding(Graph& graph, ValueId tokens, ValueId table, DType dtype, const EmbeddingOptions& options) {
  return graph.add_node(kEmbedding, {tokens, table, options.positions, options.position_table},
                        EmbeddingAttrs{dtype, options.scale, options.padding_id})[0];
}

}  // namespace strata::ops
