#include <algorithm>

#include "ops/ops.h"
#include "ops/rules.h"

namespace strata::ops {
namespace {

void require_starts(const NodeView& view, int start) {
  if (!view.has(start)) return;
  require(view, view.in(start).dtype == DType::kI32 && view.in(start).shape.rank() == 1,
          "vocab_start must be i32[parts]");
}

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
  require_starts(view, Embedding::kVocabStart);
  require(view, !view.has(Embedding::kVocabStart) || !view.has(Embedding::kPositions),
          "positions are looked up apart from parts of a vocabulary");
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

std::vector<PlacementOption> placements(const NodeView& view, Axis) {
  std::vector<PlacementOption> options{{{kS0, kR, kS0, kR, kR}, {kS0}}, {{kR, kS1, kR, kS1, kR}, {kS1}}};
  if (view.has(Embedding::kVocabStart)) options.push_back({{kR, kS0, kR, kR, kS0}, {kP}});
  return options;
}

void gradient(GradientBuilder& builder, const Node& node) {
  const auto& attrs = node.attrs.as<EmbeddingAttrs>();
  const ValueId dy = builder.gradient_of(node.outputs[Embedding::kX]);
  builder.weight_grad();
  const ValueId table = node.inputs[Embedding::kTable], start = node.inputs[Embedding::kVocabStart];
  const int64_t rows = builder.graph().value(table).shape[0];
  const int64_t parts = start != kNone ? builder.graph().value(start).shape[0] : 0;
  builder.graph().add_node_into(
      kEmbeddingGrad, {dy, node.inputs[Embedding::kTokens], start}, {builder.parameter_gradient(table)},
      EmbeddingGradAttrs{rows, attrs.scale, attrs.padding_id, parts > 0 ? (rows + parts - 1) / parts : 0});
  if (node.inputs[Embedding::kPositions] != kNone) {
    builder.graph().add_node_into(
        kEmbeddingGrad, {dy, node.inputs[Embedding::kPositions], kNone},
        {builder.parameter_gradient(node.inputs[Embedding::kPositionTable])},
        EmbeddingGradAttrs{.rows = builder.graph().value(node.inputs[Embedding::kPositionTable]).shape[0]});
  }
}

std::vector<ValueSpec> infer_grad(const NodeView& view) {
  require_starts(view, EmbeddingGrad::kVocabStart);
  const auto& attrs = view.attrs<EmbeddingGradAttrs>();
  int64_t rows = attrs.rows;
  // Of the parts that are there.
  if (view.has(EmbeddingGrad::kVocabStart))
    rows = std::min(rows, attrs.rows_of_part * view.in(EmbeddingGrad::kVocabStart).shape[0]);
  return {{"dtable", DType::kF32, {rows, view.in(EmbeddingGrad::kDy).shape[1]}}};
}

// The table is cleared; then rows of it are read and written.
Cost cost_grad(const NodeView& view) {
  const double rows = static_cast<double>(view.in(EmbeddingGrad::kDy).shape.elements());
  const double table = static_cast<double>(view.out(EmbeddingGrad::kDtable).bytes());
  return {rows, table + rows * 8 + static_cast<double>(view.in(EmbeddingGrad::kDy).bytes()), table};
}

std::vector<PlacementOption> placements_grad(const NodeView& view, Axis) {
  std::vector<PlacementOption> options{{{kS0, kS0, kR}, {kP}}, {{kS1, kR, kR}, {kS1}}};
  if (view.has(EmbeddingGrad::kVocabStart)) options.push_back({{kR, kR, kS0}, {kS0}});
  return options;
}

}  // namespace

const OpDef kEmbedding{"embedding", "embedding", infer, cost, placements, gradient};
const OpDef kEmbeddingGrad{"embedding_grad", "embedding", infer_grad, cost_grad, placements_grad};

ValueId embedding(Graph& graph, ValueId tokens, ValueId table, DType dtype, const EmbeddingOptions& options) {
  return graph.add_node(kEmbedding,
                        {tokens, table, options.positions, options.position_table, options.vocab_start},
                        EmbeddingAttrs{dtype, options.scale, options.padding_id})[0];
}

}  // namespace strata::ops
