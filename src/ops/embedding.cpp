#include "ops/ops.h"
#include "ops/rules.h"

namespace strata::ops {
namespace {

std::vector<ValueSpec> infer(const NodeView& view) {
  require(view, view.in(0).dtype == DType::kI32 && view.in(0).shape.rank() == 1, "tokens must be i32[N]");
  require(view, view.in(1).shape.rank() == 2, "the table must be [V, D]");
  require(view, view.has(2) == view.has(3), "positions and their table come together");
  if (view.has(2)) {
    require(view, view.in(2).shape == view.in(0).shape, "there must be one position a token");
    require(view, view.in(3).shape[1] == view.in(1).shape[1], "both tables must be equally wide");
  }
  const DType dtype = view.attrs().integer("bf16") != 0 ? DType::kBF16 : DType::kF32;
  return {{"x", dtype, {view.in(0).shape[0], view.in(1).shape[1]}}};
}

Cost cost(const NodeView& view) {
  // Only the rows that are looked up are read.
  const double rows = static_cast<double>(view.out(0).shape.elements());
  return {view.has(2) ? rows : 0, rows * (view.has(2) ? 8 : 4) + static_cast<double>(view.out(0).bytes())};
}

std::vector<PlacementOption> placements(const NodeView&) {
  return {{{kS0, kR, kS0, kR}, {kS0}}, {{kR, kS1, kR, kS1}, {kS1}}};
}

void gradient(GradientBuilder& builder, const Node& node) {
  const ValueId dy = builder.gradient_of(node.outputs[0]);
  builder.weight_grad();
  builder.graph().add_node_into(kEmbeddingGrad, {dy, node.inputs[0]},
                                {builder.parameter_gradient(node.inputs[1])},
                                {{"rows", builder.graph().value(node.inputs[1]).shape[0]},
                                 {"scale", node.attrs.real("scale")},
                                 {"padding_id", node.attrs.integer("padding_id")}});
  if (node.inputs[2] != kNone) {
    builder.graph().add_node_into(kEmbeddingGrad, {dy, node.inputs[2]},
                                  {builder.parameter_gradient(node.inputs[3])},
                                  {{"rows", builder.graph().value(node.inputs[3]).shape[0]},
                                   {"scale", 1.0},
                                   {"padding_id", int64_t{-1}}});
  }
}

std::vector<ValueSpec> infer_grad(const NodeView& view) {
  return {{"dtable", DType::kF32, {view.attrs().integer("rows"), view.in(0).shape[1]}}};
}

// The table is cleared; then rows of it are read and written.
Cost cost_grad(const NodeView& view) {
  const double rows = static_cast<double>(view.in(0).shape.elements());
  const double table = static_cast<double>(view.out(0).bytes());
  return {rows, table + rows * 8 + static_cast<double>(view.in(0).bytes()), table};
}

std::vector<PlacementOption> placements_grad(const NodeView&) {
  return {{{kS0, kS0}, {kP}}, {{kS1, kR}, {kS1}}};
}

}  // namespace

const OpDef kEmbedding{"embedding", "embedding", infer, cost, placements, gradient};
const OpDef kEmbeddingGrad{"embedding_grad", "embedding", infer_grad, cost_grad, placements_grad};

ValueId embedding(Graph& graph, ValueId tokens, ValueId table, DType dtype, const EmbeddingOptions& options) {
  return graph.add_node(kEmbedding, {tokens, table, options.positions, options.position_table},
                        {{"bf16", int64_t{dtype == DType::kBF16}},
                         {"scale", options.scale},
                         {"padding_id", options.padding_id}})[0];
}

}  // namespace strata::ops
