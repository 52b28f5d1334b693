#include "ops/ops.h"
#include "ops/rules.h"

namespace strata::ops {
namespace {

std::vector<ValueSpec> infer(const NodeView& view) {
  require(view, view.in(Linear::kX).shape.rank() == 2 && view.in(Linear::kWeight).shape.rank() == 2,
          "x and the weight must be matrices");
  require(view, view.in(Linear::kX).shape[1] == view.in(Linear::kWeight).shape[1],
          "the last axis of x must equal the last axis of the weight");
  if (view.has(Linear::kBias)) {
    require(view, view.in(Linear::kBias).shape == Shape{view.in(Linear::kWeight).shape[0]},
            "the bias must have one element an output");
  }
  const DType dtype = view.attrs<LinearAttrs>().f32_output ? DType::kF32 : view.in(Linear::kX).dtype;
  return {{"y",
           dtype,
           {view.in(Linear::kX).shape[0], view.in(Linear::kWeight).shape[0]},
           view.in(Linear::kWeight).segments}};
}

double product(const Shape& rows, const Shape& matrix) {
  return 2.0 * static_cast<double>(rows[0]) * static_cast<double>(matrix.elements());
}

Cost cost(const NodeView& view) {
  return {product(view.in(Linear::kX).shape, view.in(Linear::kWeight).shape), graph::streamed_bytes(view)};
}

std::vector<PlacementOption> placements(const NodeView& view, Axis) {
  std::vector<PlacementOption> options{{{kS0, kR, kR}, {kS0}}, {{kR, kS0, kS0}, {kS1}}};
  // A bias would be added once a shard: the row-parallel form has none.
  if (!view.has(Linear::kBias)) options.push_back({{kS1, kS1, kR}, {kP}});
  return options;
}

void gradient(GradientBuilder& builder, const Node& node) {
  Graph& graph = builder.graph();
  const ValueId dy = builder.gradient_of(node.outputs[Linear::kY]);
  if (builder.wants(node.inputs[Linear::kX])) {
    builder.add_gradient(node.inputs[Linear::kX],
                         graph.add_node(kLinearGradInput, {dy, node.inputs[Linear::kWeight]})[0]);
  }
  builder.weight_grad();
  graph.add_node_into(kLinearGradWeight, {dy, node.inputs[Linear::kX]},
                      {builder.parameter_gradient(node.inputs[Linear::kWeight])});
  if (node.inputs[Linear::kBias] != kNone) {
    graph.add_node_into(kColumnSums, {dy}, {builder.parameter_gradient(node.inputs[Linear::kBias])});
  }
}

std::vector<ValueSpec> infer_grad_input(const NodeView& view) {
  require(view, view.in(LinearGradInput::kDy).shape[1] == view.in(LinearGradInput::kWeight).shape[0],
          "the gradient must have one column an output");
  return {{"dx",
           view.in(LinearGradInput::kDy).dtype,
           {view.in(LinearGradInput::kDy).shape[0], view.in(LinearGradInput::kWeight).shape[1]}}};
}

std::vector<PlacementOption> placements_grad_input(const NodeView&, Axis) {
  return {{{kS0, kR}, {kS0}}, {{kS1, kS0}, {kP}}, {{kR, kS1}, {kS1}}, {{kP, kR}, {kP}}};
}

std::vector<ValueSpec> infer_grad_weight(const NodeView& view) {
  require(view, view.in(LinearGradWeight::kDy).shape[0] == view.in(LinearGradWeight::kX).shape[0],
          "gradient and x must have the same rows");
  return {
      {"dw", DType::kF32, {view.in(LinearGradWeight::kDy).shape[1], view.in(LinearGradWeight::kX).shape[1]}}};
}

Cost cost_grad_weight(const NodeView& view) {
  const double outputs = static_cast<double>(view.in(LinearGradWeight::kDy).shape[1]) *
                         static_cast<double>(view.in(LinearGradWeight::kX).shape[1]);
  return {2.0 * static_cast<double>(view.in(LinearGradWeight::kDy).shape[0]) * outputs,
          graph::streamed_bytes(view)};
}

std::vector<PlacementOption> placements_grad_weight(const NodeView&, Axis) {
  return {{{kS0, kS0}, {kP}}, {{kS1, kR}, {kS0}}, {{kR, kS1}, {kS1}}, {{kP, kR}, {kP}}};
}

std::vector<ValueSpec> infer_column_sums(const NodeView& view) {
  return {{"sums", DType::kF32, {view.in(ColumnSums::kDy).shape[1]}}};
}

Cost cost_column_sums(const NodeView& view) {
  return streamed(view, 1);
}

std::vector<PlacementOption> placements_column_sums(const NodeView&, Axis) {
  return {{{kS0}, {kP}}, {{kS1}, {kS0}}, {{kP}, {kP}}};
}

std::vector<ValueSpec> infer_pack(const NodeView& view) {
  return {{"packed", view.out(PackWeight::kPacked).dtype, view.in(PackWeight::kWeight).shape}};
}

Cost cost_pack(const NodeView& view) {
  return {0, graph::streamed_bytes(view)};
}

std::vector<PlacementOption> placements_pack(const NodeView&, Axis) {
  return {{{kS0}, {kS0}}, {{kS1}, {kS1}}};
}

}  // namespace

const OpDef kLinear{"linear", "gemm", infer, cost, placements, gradient};
const OpDef kLinearGradInput{"linear_grad_input", "gemm", infer_grad_input, cost, placements_grad_input};
const OpDef kLinearGradWeight{"linear_grad_weight", "gemm_weight", infer_grad_weight, cost_grad_weight,
                              placements_grad_weight};
const OpDef kColumnSums{"column_sums", "elementwise", infer_column_sums, cost_column_sums,
                        placements_column_sums};
const OpDef kPackWeight{"pack_weight", "update", infer_pack, cost_pack, placements_pack};

ValueId linear(Graph& graph, ValueId x, ValueId weight, ValueId bias, bool f32_output) {
  return graph.add_node(kLinear, {x, weight, bias}, LinearAttrs{f32_output})[0];
}

}  // namespace strata::ops
