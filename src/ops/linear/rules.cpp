#include "ops/rules.h"
#include "ops/linear/linear.h"
#include "ops/router/router.h"

namespace strata::ops {
namespace {

Cost cost_of_product(const NodeView& view, int64_t rows, const Shape& matrix) {
  return {2.0 * static_cast<double>(rows) * static_cast<double>(matrix.elements()),
          graph::streamed_bytes(view)};
}

Outputs<Linear> infer_linear(const View<Linear>& node) {
  const Shape &x = node.in.x->shape, &weight = node.in.weight->shape;
  require(node, x.rank() == 2 && weight.rank() == 2, "x and the weight must be matrices");
  require(node, x[1] == weight[1], "the last axis of x must equal the last axis of the weight");
  require(node, !node.in.bias || node.in.bias->shape == Shape{weight[0]},
          "the bias must have one element an output");
  return {.y = {node.attrs.f32_output ? DType::kF32 : node.in.x->dtype,
                {x[0], weight[0]},
                node.in.weight->segments}};
}

void gradient_linear(GradientBuilder& builder, const View<Linear>& node) {
  Graph& graph = builder.graph();
  const auto& in = node.in;
  ValueId dy = builder.gradient_of(node.out.y);
  // Both matmuls of backward read the type of x.
  if (node.attrs.f32_output) dy = cast(graph, dy, node.in.x->dtype);
  if (!node.attrs.detached && builder.wants(in.x))
    builder.add_gradient(in.x, add<LinearGradInput>(graph, {.dy = dy, .weight = in.weight}).dx);
  builder.weight_grad();
  add_into<LinearGradWeight>(graph, {.dy = dy, .x = in.x}, {.dw = builder.parameter_gradient(in.weight)});
  if (in.bias) add_into<ColumnSums>(graph, {.dy = dy}, {.sums = builder.parameter_gradient(in.bias)});
}

}  // namespace

const OpDef Linear::def = define<Linear>({
    .name = "linear",
    .family = "gemm",
    .infer = infer_linear,
    .cost =
        [](const auto& node) {
          return cost_of_product(node.untyped(), node.in.x->shape[0], node.in.weight->shape);
        },
    .placements = [](const auto& node, Axis) -> Splits<Linear> {
      Splits<Linear> splits{{{.x = kS0, .weight = kR}, {.y = kS0}},
                            {{.x = kR, .weight = kS0, .bias = kS0}, {.y = kS1}}};
      // A bias would be added once a shard: the row-parallel form has none.
      if (!node.in.bias) splits.push_back({{.x = kS1, .weight = kS1}, {.y = kP}});
      return splits;
    },
    .gradient = gradient_linear,
});

const OpDef LinearGradInput::def = define<LinearGradInput>({
    .name = "linear_grad_input",
    .family = "gemm",
    .infer = [](const auto& node) -> Outputs<LinearGradInput> {
      const Value &dy = *node.in.dy, &weight = *node.in.weight;
      require(node, dy.shape[1] == weight.shape[0], "the gradient must have one column an output");
      return {.dx = {dy.dtype, {dy.shape[0], weight.shape[1]}}};
    },
    .cost =
        [](const auto& node) {
          return cost_of_product(node.untyped(), node.in.dy->shape[0], node.in.weight->shape);
        },
    .placements = [](const auto&, Axis) -> Splits<LinearGradInput> {
      return {{{.dy = kS0, .weight = kR}, {.dx = kS0}},
              {{.dy = kS1, .weight = kS0}, {.dx = kP}},
              {{.dy = kR, .weight = kS1}, {.dx = kS1}},
              {{.dy = kP, .weight = kR}, {.dx = kP}}};
    },
});

const OpDef LinearGradWeight::def = define<LinearGradWeight>({
    .name = "linear_grad_weight",
    .family = "gemm_weight",
    .infer = [](const auto& node) -> Outputs<LinearGradWeight> {
      const Shape &dy = node.in.dy->shape, &x = node.in.x->shape;
      require(node, dy[0] == x[0], "gradient and x must have the same rows");
      return {.dw = {DType::kF32, {dy[1], x[1]}}};
    },
    .cost =
        [](const auto& node) {
          const Shape& dy = node.in.dy->shape;
          return cost_of_product(node.untyped(), dy[0], {dy[1], node.in.x->shape[1]});
        },
    .placements = [](const auto&, Axis) -> Splits<LinearGradWeight> {
      return {{{.dy = kS0, .x = kS0}, {.dw = kP}},
              {{.dy = kS1, .x = kR}, {.dw = kS0}},
              {{.dy = kR, .x = kS1}, {.dw = kS1}},
              {{.dy = kP, .x = kR}, {.dw = kP}}};
    },
});

const OpDef ColumnSums::def = define<ColumnSums>({
    .name = "column_sums",
    .family = "elementwise",
    .infer = [](const auto& node) -> Outputs<ColumnSums> {
      return {.sums = {DType::kF32, {node.in.dy->shape[1]}}};
    },
    .cost = [](const auto& node) { return streamed(node, 1); },
    .placements = [](const auto&, Axis) -> Splits<ColumnSums> {
      return {{{.dy = kS0}, {.sums = kP}}, {{.dy = kS1}, {.sums = kS0}}, {{.dy = kP}, {.sums = kP}}};
    },
});

const OpDef PackWeight::def = define<PackWeight>({
    .name = "pack_weight",
    .family = "update",
    .infer = [](const auto& node) -> Outputs<PackWeight> {
      return {.packed = {node.out.packed->dtype, node.in.weight->shape}};
    },
    .cost = [](const auto& node) { return streamed(node, 0); },
    .placements = [](const auto&, Axis) -> Splits<PackWeight> {
      return {{{.weight = kS0}, {.packed = kS0}}, {{.weight = kS1}, {.packed = kS1}}};
    },
});

ValueId linear(Graph& graph, ValueId x, ValueId weight, ValueId bias, const LinearAttrs& attrs) {
  return add<Linear>(graph, {.x = x, .weight = weight, .bias = bias}, attrs).y;
}

}  // namespace strata::ops
