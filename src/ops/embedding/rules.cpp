#include <algorithm>

#include "ops/embedding/embedding.h"
#include "ops/rules.h"

namespace strata::ops {
namespace {

template <typename Op>
void require_starts(const View<Op>& node) {
  require(node, !node.in.vocab_start || node.in.vocab_start->shape.rank() == 1,
          "vocab_start must be i32[parts]");
}

Outputs<Embedding> infer_embedding(const View<Embedding>& node) {
  const auto& in = node.in;
  require(node, in.tokens->shape.rank() == 1, "tokens must be i32[N]");
  require(node, in.table->shape.rank() == 2, "the table must be [V, D]");
  require(node, in.table->dtype == DType::kF32 || in.table->dtype == DType::kBF16,
          "the table must be fp32 or bf16");
  require(node, in.positions.present() == in.position_table.present(),
          "positions and their table come together");
  if (in.positions) {
    require(node, in.positions->shape == in.tokens->shape, "there must be one position a token");
    require(node, in.position_table->shape[1] == in.table->shape[1], "both tables must be equally wide");
  }
  require_starts(node);
  require(node, !in.vocab_start || !in.positions, "positions are looked up apart from parts of a vocabulary");
  return {.x = {node.attrs.dtype, {in.tokens->shape[0], in.table->shape[1]}}};
}

void gradient_embedding(GradientBuilder& builder, const View<Embedding>& node) {
  Graph& graph = builder.graph();
  const auto& in = node.in;
  const ValueId dy = builder.gradient_of(node.out.x);
  builder.weight_grad();
  const int64_t rows = in.table->shape[0];
  const int64_t parts = in.vocab_start ? in.vocab_start->shape[0] : 0;
  add_into<EmbeddingGrad>(
      graph, {.dy = dy, .ids = in.tokens, .vocab_start = in.vocab_start},
      {.dtable = builder.parameter_gradient(in.table)},
      {rows, node.attrs.scale, node.attrs.padding_id, parts > 0 ? (rows + parts - 1) / parts : 0});
  if (!in.positions) return;
  add_into<EmbeddingGrad>(graph, {.dy = dy, .ids = in.positions},
                          {.dtable = builder.parameter_gradient(in.position_table)},
                          {.rows = in.position_table->shape[0]});
}

}  // namespace

const OpDef Embedding::def = define<Embedding>({
    .name = "embedding",
    .family = "embedding",
    .infer = infer_embedding,
    .cost = [](const auto& node) -> Cost {
      // Only the rows that are looked up are read.
      const double elements = static_cast<double>(node.out.x->shape.elements());
      const bool positions = node.in.positions.present();
      return {positions ? elements : 0,
              elements * (positions ? 8 : 4) + static_cast<double>(node.out.x->bytes())};
    },
    .placements = [](const auto& node, Axis) -> Splits<Embedding> {
      Splits<Embedding> splits{{{.tokens = kS0, .table = kR, .positions = kS0}, {.x = kS0}},
                               {{.tokens = kR, .table = kS1, .position_table = kS1}, {.x = kS1}}};
      if (node.in.vocab_start)
        splits.push_back({{.tokens = kR, .table = kS0, .vocab_start = kS0}, {.x = kP}});
      return splits;
    },
    .gradient = gradient_embedding,
});

const OpDef EmbeddingGrad::def = define<EmbeddingGrad>({
    .name = "embedding_grad",
    .family = "embedding",
    .infer = [](const auto& node) -> Outputs<EmbeddingGrad> {
      require_starts(node);
      int64_t rows = node.attrs.rows;
      // With vocab_start, only the rows of its parts.
      if (node.in.vocab_start) rows = std::min(rows, node.attrs.rows_of_part * node.in.vocab_start->shape[0]);
      return {.dtable = {DType::kF32, {rows, node.in.dy->shape[1]}}};
    },
    // The table is cleared; then rows of it are read and written.
    .cost = [](const auto& node) -> Cost {
      const double elements = static_cast<double>(node.in.dy->shape.elements());
      const double table = static_cast<double>(node.out.dtable->bytes());
      return {elements, table + elements * 8 + static_cast<double>(node.in.dy->bytes()), table};
    },
    .placements = [](const auto& node, Axis) -> Splits<EmbeddingGrad> {
      Splits<EmbeddingGrad> splits{{{.dy = kS0, .ids = kS0}, {.dtable = kP}},
                                   {{.dy = kS1, .ids = kR}, {.dtable = kS1}}};
      if (node.in.vocab_start) splits.push_back({{.dy = kR, .ids = kR, .vocab_start = kS0}, {.dtable = kS0}});
      return splits;
    },
});

ValueId embedding(Graph& graph, ValueId tokens, ValueId table, DType dtype, const EmbeddingOptions& options) {
  return add<Embedding>(graph,
                        {.tokens = tokens,
                         .table = table,
                         .positions = options.positions,
                         .position_table = options.position_table,
                         .vocab_start = options.vocab_start},
                        {dtype, options.scale, options.padding_id})
      .x;
}

}  // namespace strata::ops
