#include <map>
#include <utility>

#include "base/error.h"
#include "graph/reshard.h"
#include "optim/adafactor/adafactor.h"
#include "optim/update_rules.h"

namespace strata::optim {

AdafactorUpdate::Out<StateShapes> AdafactorUpdate::states(const Shape& rows) {
  return {.parameter = {},
          .row = {{rows[0]}, StateLayout::kRows},
          .column = {.shape = {rows[1]}, .layout = StateLayout::kTensor, .whole = true}};
}

namespace {

// Sums over the parameter, means over the gradient's rows and columns, the update's size, the update.
constexpr UpdateWork kAdafactorWork{12, 3, 3};

// --- Tensors in shards

// FLOPs for each element of the rows of a value, and passes over them.
template <typename Op>
Cost cost_of_part(const View<Op>& node, const Value& like, double flops, double passes) {
  const UpdateElements own(node.attrs.update, like.shape);
  const auto elements = static_cast<double>(own.count);
  return {flops * elements, 4 * passes * elements};
}

AdafactorShardAttrs localize_part(AdafactorShardAttrs attrs, const Value& like, const graph::Mesh& mesh) {
  attrs.update = localized(attrs.update, like, mesh);
  return attrs;
}

// Checks what all three ops hold of the rows of a value: row or variance.
template <typename Op>
void check_rows(const View<Op>& node, const Shape& shape, const Value& state) {
  require(node, shape.rank() <= 2, "Adafactor updates matrices and vectors");
  require_value(node.untyped(), state, {row_range(node.attrs.update, shape).rows},
                shape.rank() == 1 ? "the variance" : "the row");
}

Shape shape_of_sums(const Shape& parameter) {
  return {parameter.rank() == 1 ? 2 : parameter[1] + 2};
}

Outputs<AdafactorSums> infer_sums(const View<AdafactorSums>& node) {
  const Shape& shape = node.in.parameter->shape;
  check_rows(node, shape, *node.in.state);
  require_value(node.untyped(), *node.in.gradient, shape, "the gradient");
  return {.state = {DType::kF32, node.in.state->shape}, .sums = {DType::kF64, shape_of_sums(shape)}};
}

Outputs<AdafactorColumns> infer_columns(const View<AdafactorColumns>& node) {
  const Shape& shape = node.in.gradient->shape;
  require(node, shape.rank() == 2, "a vector has no columns");
  check_rows(node, shape, *node.in.row);
  require_value(node.untyped(), *node.in.column, {shape[1]}, "the column");
  require_value(node.untyped(), *node.in.sums, shape_of_sums(shape), "the sums");
  return {.column = {DType::kF32, {shape[1]}}, .squares = {DType::kF64, {1}}};
}

Outputs<AdafactorApply> infer_adafactor_apply(const View<AdafactorApply>& node) {
  const Shape& shape = node.in.parameter->shape;
  check_rows(node, shape, *node.in.state);
  require_value(node.untyped(), *node.in.gradient, shape, "the gradient");
  require_value(node.untyped(), *node.in.sums, shape_of_sums(shape), "the sums");
  require(node,
          node.in.column.present() == (shape.rank() == 2) && node.in.squares.present() == (shape.rank() == 2),
          "matrices have a column and squares of their updates, vectors have not");
  if (shape.rank() == 2) {
    require_value(node.untyped(), *node.in.column, {shape[1]}, "the column");
    require_value(node.untyped(), *node.in.squares, {1}, "the squares");
  }
  return {.parameter = {DType::kF32, shape}};
}

// A value for an output of a node besides the state that it moves.
ValueId output_besides_state(Graph& graph, const OpDef& op, std::string_view suffix, Shape shape) {
  return graph.add_value({.name = fmt::format("{}{}.{}", op.name, graph.nodes().size(), suffix),
                          .dtype = DType::kF64,
                          .shape = shape});
}

// Ranks that hold columns of a matrix put it together, with its gradient, for the update.
ValueId with_all_columns(Graph& graph, ValueId x) {
  for (const Axis axis : graph::kAllAxes) {
    if (graph.placement(x, axis) == Placement::sharded(1)) x = graph::reshard(graph, x, axis, kR);
  }
  return x;
}

// What a rank holds of an updated matrix goes back into the parameter.
void take_columns(Graph& graph, ValueId updated, ValueId parameter) {
  std::vector<Axis> axes;
  for (const Axis axis : graph::kAllAxes) {
    if (graph.mesh().size(axis) > 1 && graph.placement(parameter, axis) == Placement::sharded(1))
      axes.push_back(axis);
  }
  STRATA_CHECK(axes.size() == 1, "the columns of {} are sharded along {} axes", graph.value(parameter).name,
               axes.size());
  graph::add_into<graph::TakeShard>(graph, {.x = updated, .rank = graph::rank_block(graph)},
                                    {.moved = parameter},
                                    {.axis = axes[0], .from = kR, .to = Placement::sharded(1)});
}

// Matrices with all of their columns, put together once for all tensors that are rows of one.
class WithAllColumns {
 public:
  explicit WithAllColumns(Graph& graph) : graph_(graph) {}
  ValueId operator()(ValueId x) {
    const auto known = made_.find(x);
    return known != made_.end() ? known->second : made_[x] = with_all_columns(graph_, x);
  }

 private:
  Graph& graph_;
  std::map<ValueId, ValueId> made_;
};

// The gathered matrix after the update of the rows of one tensor. The kernel leaves all other rows unchanged.
ValueId updated_rows(Graph& graph, ValueId matrix, graph::InIds<AdafactorApply> in,
                     const AdafactorShardAttrs& attrs) {
  in.parameter = matrix;
  const ValueId updated = add<AdafactorApply>(graph, in, attrs).parameter;
  Value& value = graph.value(updated);
  value.sharding.padding = graph.value(matrix).sharding.padding;
  value.segments = graph.value(matrix).segments;
  value.segments_along = graph.value(matrix).segments_along;
  return updated;
}

// The tensors of a layer: their sums go in one call, and so do the squares of their updates.
void add_layer(Graph& graph, ValueId scalars, std::vector<ShardedRows> tensors) {
  std::vector<ValueId> held;
  WithAllColumns together(graph);
  for (ShardedRows& one : tensors) {
    held.push_back(one.parameter);
    one.parameter = together(one.parameter);
    one.gradient = together(one.gradient);
  }
  std::vector<AdafactorShardAttrs> attrs;
  std::vector<ValueId> sums, squares;
  const auto row_of = [](const ShardedRows& one) { return one.states.front(); };
  const auto column_of = [](const ShardedRows& one) { return one.states.size() > 1 ? one.states[1] : kNone; };
  for (const ShardedRows& one : tensors) {
    const Shape& shape = graph.value(one.parameter).shape;
    attrs.push_back({one.attrs, row_range(one.attrs, shape).rows});
    sums.push_back(output_besides_state(graph, AdafactorSums::def, "sums", shape_of_sums(shape)));
    add_into<AdafactorSums>(
        graph,
        {.parameter = one.parameter, .state = row_of(one), .gradient = one.gradient, .scalars = scalars},
        {.state = row_of(one), .sums = sums.back()}, attrs.back());
  }
  sums = graph::sum_over_ranks(graph, std::move(sums));
  for (size_t i = 0; i < tensors.size(); ++i) {
    const ShardedRows& one = tensors[i];
    if (column_of(one) == kNone) continue;
    squares.push_back(output_besides_state(graph, AdafactorColumns::def, "squares", {1}));
    add_into<AdafactorColumns>(graph,
                               {.row = row_of(one),
                                .column = column_of(one),
                                .gradient = one.gradient,
                                .sums = sums[i],
                                .scalars = scalars},
                               {.column = column_of(one), .squares = squares.back()}, attrs[i]);
  }
  squares = graph::sum_over_ranks(graph, std::move(squares));
  std::map<ValueId, ValueId> whole;  // by parameter: the updated part of its matrix
  size_t next = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const ShardedRows& one = tensors[i];
    const graph::InIds<AdafactorApply> in{.parameter = one.parameter,
                                          .state = row_of(one),
                                          .column = column_of(one),
                                          .gradient = one.gradient,
                                          .sums = sums[i],
                                          .squares = column_of(one) != kNone ? squares[next++] : kNone,
                                          .scalars = scalars};
    if (one.parameter == held[i]) {
      add_into<AdafactorApply>(graph, in, {.parameter = one.parameter}, attrs[i]);
      continue;
    }
    ValueId& matrix = whole.try_emplace(held[i], one.parameter).first->second;
    matrix = updated_rows(graph, matrix, in, attrs[i]);
  }
  for (const auto& [parameter, matrix] : whole) take_columns(graph, matrix, parameter);
}

}  // namespace

// The means of columns and the sizes of parameter and update are those of the whole tensor. If ranks have
// whole tensors, each updates its own.
const OpDef AdafactorUpdate::def = define<AdafactorUpdate>({
    .name = "adafactor",
    .family = "update",
    .infer =
        [](const auto& node) {
          require(node, node.in.parameter->shape.rank() <= 2, "Adafactor updates matrices and vectors");
          return infer_update(node);
        },
    .cost = [](const auto& node) { return update_cost(node, kAdafactorWork); },
    .placements = [](const auto& node, Axis axis) -> Splits<AdafactorUpdate> {
      if (!is_distributed_along(node.attrs, *node.in.parameter, axis)) return {};
      return {update_split<AdafactorUpdate>(kS0)};
    },
    .in_place = {{"parameter", "parameter"}, {"row", "row"}, {"column", "column"}},
    .localize = localize_update,
});
const OpDef AdafactorVectorUpdate::def = define<AdafactorVectorUpdate>({
    .name = "adafactor_vector",
    .family = "update",
    .infer = infer_update,
    .cost = [](const auto& node) { return update_cost(node, kAdafactorWork); },
    .in_place = {{"parameter", "parameter"}, {"variance", "variance"}},
});

const OpDef AdafactorSums::def = define<AdafactorSums>({
    .name = "adafactor_sums",
    .family = "update",
    .infer = infer_sums,
    .cost = [](const auto& node) { return cost_of_part(node, *node.in.parameter, 5, 2); },
    .placements = [](const auto&, Axis) -> Splits<AdafactorSums> {
      return {{{.parameter = kS0, .state = kS0, .gradient = kS0, .scalars = kR}, {.state = kS0, .sums = kP}}};
    },
    .in_place = {{"state", "state"}},
    .localize =
        [](const auto& node) { return localize_part(node.attrs, *node.in.parameter, node.graph.mesh()); },
});
const OpDef AdafactorColumns::def = define<AdafactorColumns>({
    .name = "adafactor_columns",
    .family = "update",
    .infer = infer_columns,
    .cost = [](const auto& node) { return cost_of_part(node, *node.in.gradient, 6, 1); },
    .placements = [](const auto&, Axis) -> Splits<AdafactorColumns> {
      return {{{.row = kS0, .column = kR, .gradient = kS0, .sums = kR, .scalars = kR},
               {.column = kR, .squares = kP}}};
    },
    .in_place = {{"column", "column"}},
    .localize =
        [](const auto& node) { return localize_part(node.attrs, *node.in.gradient, node.graph.mesh()); },
});
const OpDef AdafactorApply::def = define<AdafactorApply>({
    .name = "adafactor_apply",
    .family = "update",
    .infer = infer_adafactor_apply,
    .cost = [](const auto& node) { return cost_of_part(node, *node.in.parameter, 7, 3); },
    .placements = [](const auto&, Axis) -> Splits<AdafactorApply> {
      return {{{.parameter = kS0,
                .state = kS0,
                .column = kR,
                .gradient = kS0,
                .sums = kR,
                .squares = kR,
                .scalars = kR},
               {.parameter = kS0}}};
    },
    .in_place = {{"parameter", "parameter"}},
    .localize =
        [](const auto& node) { return localize_part(node.attrs, *node.in.parameter, node.graph.mesh()); },
});

const Definition Adafactor::definition{
    .name = "adafactor",
    .help = "Second moments as means of rows and columns (Shazeer and Stern 2018, as PyTorch).",
    .keys =
        {{"beta2_decay",
          &Adafactor::beta2_decay,
          "The second moment takes a share of t^beta2_decay of update t's.",
          {.least = -1, .most = 0}},
         {"eps1", &Adafactor::eps1, "Least root of a second moment.", {.least = kLeastConstant, .most = 1}},
         {"eps2",
          &Adafactor::eps2,
          "Least size of a tensor, which its learning rate is relative to.",
          {.least = kLeastConstant, .most = 1}},
         {"clip_threshold",
          &Adafactor::clip_threshold,
          "Largest root mean square of an update.",
          {.most = 1e6, .above = 0}}},
    .unit = Definition::Unit::kTensor,
    .op = [](const Shape& rows) -> const OpDef& {
      return rows.rank() == 1 ? AdafactorVectorUpdate::def : AdafactorUpdate::def;
    },
    .states =
        [](const Shape& rows) {
          return rows.rank() == 1 ? states_of<AdafactorVectorUpdate>(rows) : states_of<AdafactorUpdate>(rows);
        },
    .add_sharded =
        [](Graph& graph, ValueId scalars, const std::vector<ShardedRows>& all) {
          for_each_layer(
              all, [&](std::vector<ShardedRows> tensors) { add_layer(graph, scalars, std::move(tensors)); });
        },
};

}  // namespace strata::optim
