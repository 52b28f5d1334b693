#include "ops/ops.h"
#include "ops/rules.h"

namespace strata::ops {
namespace {

// --- scale

std::vector<ValueSpec> infer_scale(const NodeView& view) {
  return {{"y", view.in(Scale::kX).dtype, view.in(Scale::kX).shape, view.in(Scale::kX).segments}};
}

Cost cost_stream(const NodeView& view) {
  return streamed(view, 1);
}

std::vector<PlacementOption> placements_scale(const NodeView&, Axis) {
  return {{{kS0}, {kS0}}, {{kS1}, {kS1}}, {{kP}, {kP}}};
}

void gradient_scale(GradientBuilder& builder, const Node& node) {
  const ValueId dy = builder.gradient_of(node.outputs[Scale::kY]);
  builder.add_gradient(node.inputs[Scale::kX], builder.graph().add_node(kScale, {dy}, node.attrs)[0]);
}

// --- one row added to all

std::vector<ValueSpec> infer_add_row(const NodeView& view) {
  const Value& x = view.in(AddRow::kX);
  const Value& table = view.in(AddRow::kTable);
  require(view, x.shape.rank() == 2, "x must be [N, D]");
  const int rank = table.shape.rank();
  require(view, table.dtype == DType::kF32 && (rank == 1 || rank == 2) && table.shape[rank - 1] == x.shape[1],
          "the table must be f32[R, D] or f32[D], as wide as x");
  const int64_t row = view.attrs<AddRowAttrs>().row;
  require(view, row >= 0 && row < (rank == 1 ? 1 : table.shape[0]), "the row must be one of the table");
  return {{"y", x.dtype, x.shape, x.segments}};
}

std::vector<PlacementOption> placements_add_row(const NodeView& view, Axis) {
  const auto columns = Placement::sharded(view.in(AddRow::kTable).shape.rank() - 1);
  return {{{kS0, kR}, {kS0}}, {{kS1, columns}, {kS1}}};
}

void gradient_add_row(GradientBuilder& builder, const Node& node) {
  const ValueId dy = builder.gradient_of(node.outputs[AddRow::kY]);
  builder.add_gradient(node.inputs[AddRow::kX], dy);
  builder.weight_grad();
  const ValueId gradient = builder.parameter_gradient(node.inputs[AddRow::kTable]);
  const Shape table = builder.graph().value(node.inputs[AddRow::kTable]).shape;
  if (table.rank() == 1) {
    builder.graph().add_node_into(kColumnSums, {dy}, {gradient});
  } else {
    builder.graph().add_node_into(kAddRowGrad, {dy}, {gradient},
                                  AddRowGradAttrs{table[0], node.attrs.as<AddRowAttrs>().row});
  }
}

std::vector<ValueSpec> infer_add_row_grad(const NodeView& view) {
  return {{"dtable", DType::kF32, {view.attrs<AddRowGradAttrs>().rows, view.in(AddRowGrad::kDy).shape[1]}}};
}

std::vector<PlacementOption> placements_add_row_grad(const NodeView&, Axis) {
  return {{{kS0}, {kP}}, {{kS1}, {kS1}}};
}

}  // namespace

const OpDef kScale{"scale",          "elementwise",  infer_scale, cost_stream,
                   placements_scale, gradient_scale, {{0, 0}}};
const OpDef kAddRow{"add_row",          "elementwise",    infer_add_row, cost_stream,
                    placements_add_row, gradient_add_row, {{0, 0}}};
const OpDef kAddRowGrad{"add_row_grad", "elementwise", infer_add_row_grad, cost_stream,
                        placements_add_row_grad};

ValueId scale(Graph& graph, ValueId x, double factor) {
  return graph.add_node(kScale, {x}, ScaleAttrs{factor})[0];
}

ValueId add_row(Graph& graph, ValueId x, ValueId table, int64_t row) {
  return graph.add_node(kAddRow, {x, table}, AddRowAttrs{row})[0];
}

}  // namespace strata::ops
