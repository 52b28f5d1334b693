#include <algorithm>
#include <utility>

#include "ops/elementwise/elementwise.h"
#include "ops/linear/linear.h"
#include "ops/rules.h"

namespace strata::ops {

const OpDef Scale::def = define<Scale>({
    .name = "scale",
    .family = "elementwise",
    .infer = [](const auto& node) -> Outputs<Scale> { return {.y = Spec::like(*node.in.x)}; },
    .cost = [](const auto& node) { return streamed(node, 1); },
    .placements = [](const auto&, Axis) -> Splits<Scale> {
      return {{{.x = kS0}, {.y = kS0}}, {{.x = kS1}, {.y = kS1}}, {{.x = kP}, {.y = kP}}};
    },
    .gradient =
        [](GradientBuilder& builder, const auto& node) {
          const ValueId dy = builder.gradient_of(node.out.y);
          builder.add_gradient(node.in.x, scale(builder.graph(), dy, node.attrs.factor));
        },
    .in_place = {{"y", "x"}},
});

ValueId scale(Graph& graph, ValueId x, double factor) {
  return add<Scale>(graph, {.x = x}, {factor}).y;
}

const OpDef ScaleParts::def = define<ScaleParts>({
    .name = "scale_parts",
    .family = "elementwise",
    .infer = [](const auto& node) -> Outputs<ScaleParts> {
      const Value& x = *node.in.x;
      require(node, x.shape.rank() == 2 && x.parts(1).size() == node.attrs.factors.size(),
              "there must be a factor for each segment of x");
      return {.y = Spec::like(x)};
    },
    .cost = [](const auto& node) { return streamed(node, 1); },
    .placements = [](const auto&, Axis) -> Splits<ScaleParts> {
      return {{{.x = kS0}, {.y = kS0}}, {{.x = kS1}, {.y = kS1}}};
    },
    .gradient =
        [](GradientBuilder& builder, const auto& node) {
          const ValueId dy = builder.gradient_of(node.out.y);
          builder.add_gradient(node.in.x, add<ScaleParts>(builder.graph(), {.x = dy}, node.attrs).y);
        },
    .in_place = {{"y", "x"}},
});

ValueId scale_parts(Graph& graph, ValueId x, std::vector<double> factors) {
  const bool changes = std::any_of(factors.begin(), factors.end(), [](double factor) { return factor != 1; });
  return changes ? add<ScaleParts>(graph, {.x = x}, {std::move(factors)}).y : x;
}

const OpDef AddRow::def = define<AddRow>({
    .name = "add_row",
    .family = "elementwise",
    .infer = [](const auto& node) -> Outputs<AddRow> {
      const Shape &x = node.in.x->shape, &table = node.in.table->shape;
      const int rank = table.rank();
      require(node, x.rank() == 2, "x must be [N, D]");
      require(node, (rank == 1 || rank == 2) && table[rank - 1] == x[1],
              "the table must be f32[R, D] or f32[D], as wide as x");
      const int64_t row = node.attrs.row;
      require(node, row >= 0 && row < (rank == 1 ? 1 : table[0]), "the row must be one of the table");
      return {.y = Spec::like(*node.in.x)};
    },
    .cost = [](const auto& node) { return streamed(node, 1); },
    .placements = [](const auto& node, Axis) -> Splits<AddRow> {
      const auto columns = Placement::sharded(node.in.table->shape.rank() - 1);
      return {{{.x = kS0, .table = kR}, {.y = kS0}}, {{.x = kS1, .table = columns}, {.y = kS1}}};
    },
    .gradient =
        [](GradientBuilder& builder, const auto& node) {
          const ValueId dy = builder.gradient_of(node.out.y);
          builder.add_gradient(node.in.x, dy);
          builder.weight_grad();
          const ValueId gradient = builder.parameter_gradient(node.in.table);
          const Shape& table = node.in.table->shape;
          if (table.rank() == 1) {
            add_into<ColumnSums>(builder.graph(), {.dy = dy}, {.sums = gradient});
          } else {
            add_into<AddRowGrad>(builder.graph(), {.dy = dy}, {.dtable = gradient},
                                 {table[0], node.attrs.row});
          }
        },
    .in_place = {{"y", "x"}},
});

const OpDef AddRowGrad::def = define<AddRowGrad>({
    .name = "add_row_grad",
    .family = "elementwise",
    .infer = [](const auto& node) -> Outputs<AddRowGrad> {
      return {.dtable = {DType::kF32, {node.attrs.rows, node.in.dy->shape[1]}}};
    },
    .cost = [](const auto& node) { return streamed(node, 1); },
    .placements = [](const auto&, Axis) -> Splits<AddRowGrad> {
      return {{{.dy = kS0}, {.dtable = kP}}, {{.dy = kS1}, {.dtable = kS1}}};
    },
});

}  // namespace strata::ops
