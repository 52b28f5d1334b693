#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "graph/reshard.h"
#include "optim/definition.h"
#include "optim/operands.h"

namespace strata::optim {

using graph::Axis;
using graph::NodeView;
using graph::Placement;

namespace {

std::vector<StateSpec> states(const Shape& rows) {
  if (rows.rank() == 1) return {{"variance", DType::kF32, rows}};
  return {{"row", DType::kF32, {rows[0]}, StateLayout::kRows},
          {.name = "column",
           .dtype = DType::kF32,
           .shape = {rows[1]},
           .layout = StateLayout::kTensor,
           .whole = true}};
}

std::vector<graph::ValueSpec> infer(const NodeView& view) {
  if (view.in(UpdateOperands::kParameter).shape.rank() > 2)
    graph::shape_error(view, "Adafactor updates matrices and vectors");
  return infer_update(view, states(shape_of_rows(view)));
}

// Sums over the parameter, means over the gradient's rows and columns, the update's size, the update.
graph::Cost cost(const NodeView& view) {
  return update_cost(view, 12, 3, 3);
}

// --- Tensors in shards

// FLOPs for each element of the rows of a value, and passes over them.
graph::Cost cost_of_rows(const NodeView& view, int like, double flops, double passes) {
  const Shape& shape = view.in(like).shape;
  const int64_t rows = row_range(view.attrs<AdafactorShardAttrs>().update, shape).rows;
  const int64_t columns = shape.elements() / shape[0];
  const double elements = static_cast<double>(rows * columns);
  return {flops * elements, 4 * passes * elements};
}

graph::Attributes localize_like(const NodeView& view, int like) {
  auto attrs = view.attrs<AdafactorShardAttrs>();
  attrs.update = localized(attrs.update, view.in(like), view.graph.mesh());
  return attrs;
}

void check(const NodeView& view, int operand, const Shape& wanted, DType dtype, std::string_view name) {
  const graph::Value& value = view.in(operand);
  if (value.shape != wanted || value.dtype != dtype)
    graph::shape_error(view, fmt::format("{} must be {} {}", name, strata::name_of(dtype), wanted.str()));
}

// Checks what all three ops hold of the rows of a value: sums, and row or variance.
void check_rows(const NodeView& view, int like, int state) {
  const Shape& shape = view.in(like).shape;
  if (shape.rank() > 2) graph::shape_error(view, "Adafactor updates matrices and vectors");
  check(view, state, {row_range(view.attrs<AdafactorShardAttrs>().update, shape).rows}, DType::kF32,
        shape.rank() == 1 ? "the variance" : "the row");
}

Shape shape_of_sums(const Shape& parameter) {
  return {parameter.rank() == 1 ? 2 : parameter[1] + 2};
}

std::vector<graph::ValueSpec> infer_sums(const NodeView& view) {
  using Op = AdafactorSumsOperands;
  const Shape& shape = view.in(Op::kParameter).shape;
  check_rows(view, Op::kParameter, Op::kState);
  check(view, Op::kGradient, shape, DType::kF32, "the gradient");
  return {{"state", DType::kF32, view.in(Op::kState).shape}, {"sums", DType::kF64, shape_of_sums(shape)}};
}

std::vector<graph::ValueSpec> infer_columns(const NodeView& view) {
  using Op = AdafactorColumnsOperands;
  const Shape& shape = view.in(Op::kGradient).shape;
  if (shape.rank() != 2) graph::shape_error(view, "a vector has no columns");
  check_rows(view, Op::kGradient, Op::kRow);
  check(view, Op::kColumn, {shape[1]}, DType::kF32, "the column");
  check(view, Op::kSums, shape_of_sums(shape), DType::kF64, "the sums");
  return {{"column", DType::kF32, {shape[1]}}, {"squares", DType::kF64, {1}}};
}

std::vector<graph::ValueSpec> infer_apply(const NodeView& view) {
  using Op = AdafactorApplyOperands;
  const Shape& shape = view.in(Op::kParameter).shape;
  check_rows(view, Op::kParameter, Op::kState);
  check(view, Op::kGradient, shape, DType::kF32, "the gradient");
  check(view, Op::kSums, shape_of_sums(shape), DType::kF64, "the sums");
  if (view.has(Op::kColumn) != (shape.rank() == 2) || view.has(Op::kSquares) != (shape.rank() == 2))
    graph::shape_error(view, "matrices have a column and squares of their updates, vectors have not");
  if (shape.rank() == 2) {
    check(view, Op::kColumn, {shape[1]}, DType::kF32, "the column");
    check(view, Op::kSquares, {1}, DType::kF64, "the squares");
  }
  return {{"updated", DType::kF32, shape}};
}

// Where ranks have whole tensors each updates its own.
std::vector<graph::PlacementOption> placements(const NodeView& view, Axis axis) {
  if (!is_dealt_along(view, axis)) return placements_whole(view, axis);
  const Placement own = Placement::sharded(0);
  return {{{own, own, own, own, Placement::replicated()}, {own, own, own}}};
}

constexpr Placement kRows = Placement::sharded(0), kAll = Placement::replicated(),
                    kTerms = Placement::partial();

}  // namespace

// The means of columns and the sizes of parameter and update are those of the whole tensor.
const graph::OpDef kAdafactor{
    "adafactor", "update",     infer, cost, placements, nullptr, {{0, 0}, {1, 1}, {2, 2}},
    nullptr,     localize_rows};
const graph::OpDef kAdafactorVector{"adafactor_vector", "update", infer,           cost,
                                    placements_whole,   nullptr,  {{0, 0}, {1, 1}}};

const graph::OpDef kAdafactorSums{
    .name = "adafactor_sums",
    .family = "update",
    .infer = infer_sums,
    .cost = [](const NodeView& view) { return cost_of_rows(view, AdafactorSumsOperands::kParameter, 5, 2); },
    .placements = [](const NodeView&, Axis) -> std::vector<graph::PlacementOption> {
      return {{{kRows, kRows, kRows, kAll}, {kRows, kTerms}}};
    },
    .in_place = {{0, 1}},
    .localize = [](const NodeView& view) { return localize_like(view, AdafactorSumsOperands::kParameter); }};
const graph::OpDef kAdafactorColumns{
    .name = "adafactor_columns",
    .family = "update",
    .infer = infer_columns,
    .cost =
        [](const NodeView& view) { return cost_of_rows(view, AdafactorColumnsOperands::kGradient, 6, 1); },
    .placements = [](const NodeView&, Axis) -> std::vector<graph::PlacementOption> {
      return {{{kRows, kAll, kRows, kAll, kAll}, {kAll, kTerms}}};
    },
    .in_place = {{0, 1}},
    .localize =
        [](const NodeView& view) { return localize_like(view, AdafactorColumnsOperands::kGradient); }};
const graph::OpDef kAdafactorApply{
    .name = "adafactor_apply",
    .family = "update",
    .infer = infer_apply,
    .cost = [](const NodeView& view) { return cost_of_rows(view, AdafactorApplyOperands::kParameter, 7, 3); },
    .placements = [](const NodeView&, Axis) -> std::vector<graph::PlacementOption> {
      return {{{kRows, kRows, kAll, kRows, kAll, kAll, kAll}, {kRows}}};
    },
    .in_place = {{0, 0}},
    .localize = [](const NodeView& view) { return localize_like(view, AdafactorApplyOperands::kParameter); }};

void AdafactorShardAttrs::describe(graph::AttributeText& to) const {
  update.describe(to);
  to("tensor_rows", rows);
}

namespace {

using graph::kNone;
using graph::ValueId;

// A node that moves a state and gives sums; the sums.
ValueId add_into_state(graph::Graph& graph, const graph::OpDef& op, std::vector<ValueId> inputs,
                       ValueId state, const AdafactorShardAttrs& attrs) {
  const graph::Node node{&op, inputs, {}, attrs};
  const auto specs = op.infer({graph, node});
  const ValueId sums =
      graph.add_value({.name = fmt::format("{}{}.{}", op.name, graph.nodes().size(), specs[1].suffix),
                       .dtype = specs[1].dtype,
                       .shape = specs[1].shape});
  graph.add_node_into(op, std::move(inputs), {state, sums}, attrs);
  return sums;
}

// Ranks that hold columns of a matrix put it together, with its gradient, for the update.
ValueId with_all_columns(graph::Graph& graph, ValueId x) {
  for (const Axis axis : graph::kAllAxes) {
    if (graph.placement(x, axis) == Placement::sharded(1)) x = graph::reshard(graph, x, axis, kAll);
  }
  return x;
}

// What a rank holds of an updated matrix goes back into the parameter.
void take_columns(graph::Graph& graph, ValueId updated, ValueId parameter) {
  std::vector<Axis> axes;
  for (const Axis axis : graph::kAllAxes) {
    if (graph.mesh().size(axis) > 1 && graph.placement(parameter, axis) == Placement::sharded(1))
      axes.push_back(axis);
  }
  STRATA_CHECK(axes.size() == 1, "the columns of {} lie in shards along {} axes", graph.value(parameter).name,
               axes.size());
  graph.add_node_into(graph::kTakeShard, {updated, graph::rank_block(graph)}, {parameter},
                      graph::ReshardAttrs{.axis = axes[0], .from = kAll, .to = Placement::sharded(1)});
}

// Matrices with all of their columns, put together once for all tensors that are rows of one.
class WithAllColumns {
 public:
  explicit WithAllColumns(graph::Graph& graph) : graph_(graph) {}
  ValueId operator()(ValueId x) {
    const auto known = made_.find(x);
    return known != made_.end() ? known->second : made_[x] = with_all_columns(graph_, x);
  }

 private:
  graph::Graph& graph_;
  std::map<ValueId, ValueId> made_;
};

// The rows of one tensor updated in a matrix that was put together: the matrix after that. The kernel leaves
// all other rows as they are.
ValueId updated_rows(graph::Graph& graph, ValueId matrix, std::vector<ValueId> inputs,
                     const AdafactorShardAttrs& attrs) {
  inputs[AdafactorApplyOperands::kParameter] = matrix;
  const ValueId updated = graph.add_node(kAdafactorApply, std::move(inputs), attrs)[0];
  graph::Value& value = graph.value(updated);
  value.padding = graph.value(matrix).padding;
  value.segments = graph.value(matrix).segments;
  value.segments_along = graph.value(matrix).segments_along;
  return updated;
}

// The tensors of a layer: their sums go in one call, and so do the squares of their updates.
void add_layer(graph::Graph& graph, ValueId scalars, std::vector<ShardedRows> tensors) {
  std::vector<ValueId> held;
  WithAllColumns together(graph);
  for (ShardedRows& one : tensors) {
    held.push_back(one.parameter);
    one.parameter = together(one.parameter);
    one.gradient = together(one.gradient);
  }
  std::vector<AdafactorShardAttrs> attrs;
  std::vector<ValueId> sums, squares;
  for (const ShardedRows& one : tensors) {
    attrs.push_back({one.attrs, row_range(one.attrs, graph.value(one.parameter).shape).rows});
    sums.push_back(add_into_state(graph, kAdafactorSums,
                                  {one.parameter, one.states[0], one.gradient, scalars}, one.states[0],
                                  attrs.back()));
  }
  sums = graph::sum_over_ranks(graph, std::move(sums));
  for (size_t i = 0; i < tensors.size(); ++i) {
    const ShardedRows& one = tensors[i];
    if (one.states.size() < 2) continue;
    squares.push_back(add_into_state(graph, kAdafactorColumns,
                                     {one.states[0], one.states[1], one.gradient, sums[i], scalars},
                                     one.states[1], attrs[i]));
  }
  squares = graph::sum_over_ranks(graph, std::move(squares));
  std::map<ValueId, ValueId> whole;  // by the parameter: its matrix, as far as it is updated
  size_t next = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const ShardedRows& one = tensors[i];
    const bool is_matrix = one.states.size() > 1;
    const std::vector<ValueId> inputs{one.parameter, one.states[0], is_matrix ? one.states[1] : kNone,
                                      one.gradient,  sums[i],       is_matrix ? squares[next++] : kNone,
                                      scalars};
    if (one.parameter == held[i]) {
      graph.add_node_into(kAdafactorApply, inputs, {one.parameter}, attrs[i]);
      continue;
    }
    ValueId& matrix = whole.try_emplace(held[i], one.parameter).first->second;
    matrix = updated_rows(graph, matrix, inputs, attrs[i]);
  }
  for (const auto& [parameter, matrix] : whole) take_columns(graph, matrix, parameter);
}

void add_sharded(graph::Graph& graph, ValueId scalars, const std::vector<ShardedRows>& all) {
  for (size_t begin = 0; begin < all.size();) {
    size_t end = begin + 1;
    while (end < all.size() && all[end].layer == all[begin].layer) ++end;
    add_layer(
        graph, scalars,
        {all.begin() + static_cast<std::ptrdiff_t>(begin), all.begin() + static_cast<std::ptrdiff_t>(end)});
    begin = end;
  }
}

}  // namespace

const Definition kAdafactorDefinition{.name = "adafactor",
                                      .unit = Definition::Unit::kTensor,
                                      .op = [](const Shape& rows) -> const graph::OpDef& {
                                        return rows.rank() == 1 ? kAdafactorVector : kAdafactor;
                                      },
                                      .states = states,
                                      .add_sharded = add_sharded};

}  // namespace strata::optim
