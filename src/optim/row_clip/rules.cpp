#include "optim/row_clip/row_clip.h"

#include <algorithm>
#include <cmath>

#include "graph/reshard.h"
#include "optim/update_rules.h"

namespace strata::optim {
namespace {

bool has_row_segments(const Value& value) {
  return !value.segments.empty() && value.segment_dim() == 0;
}

ValueId squares_of_rows(Graph& graph, ValueId matrix) {
  const ValueId squares = add<RowSquares>(graph, {.x = matrix}).squares;
  // The rows are cut as the matrix is.
  graph.value(squares).sharding.padding = graph.value(matrix).sharding.padding;
  graph.value(squares).sharding.distributed_axes = graph.value(matrix).sharding.distributed_axes;
  return graph::sum_over_ranks(graph, squares);
}

}  // namespace

double row_factor(double limit, double gradient_squares, double weight_squares, double grad_scale) {
  const double most = limit * std::max(std::sqrt(weight_squares), kLeastRowNorm);
  const double norm = std::sqrt(gradient_squares) * std::abs(grad_scale);
  return norm > most ? most / norm : 1.0;
}

const OpDef RowSquares::def = define<RowSquares>({
    .name = "row_squares",
    .family = "update",
    .infer = [](const auto& node) -> Outputs<RowSquares> {
      const Value& x = *node.in.x;
      require(node, x.shape.rank() == 2, "the input must be a matrix");
      Spec squares{DType::kF64, {x.shape[0]}};
      if (has_row_segments(x)) {
        squares.segments = x.segments;
        squares.segments_along = 0;
      }
      return {.squares = squares};
    },
    .cost = [](const auto& node) { return ops::streamed(node, 2); },
    .placements = [](const auto&, Axis) -> Splits<RowSquares> {
      return {{{.x = kS0}, {.squares = kS0}}, {{.x = Placement::sharded(1)}, {.squares = kP}}};
    },
});

const OpDef ClipRows::def = define<ClipRows>({
    .name = "clip_rows",
    .family = "update",
    .infer = [](const auto& node) -> Outputs<ClipRows> {
      const Shape& shape = node.in.gradient->shape;
      require(node, shape.rank() == 2, "the gradient must be a matrix");
      require_value(node.untyped(), *node.in.gradient_squares, {shape[0]}, "the gradient's squares");
      require_value(node.untyped(), *node.in.weight_squares, {shape[0]}, "the weights' squares");
      return {.gradient = Spec::like(*node.in.gradient)};
    },
    .cost = [](const auto& node) { return ops::streamed(node, 1); },
    .placements = [](const auto&, Axis) -> Splits<ClipRows> {
      return {
          {{.gradient = kS0, .gradient_squares = kS0, .weight_squares = kS0, .scalars = kR},
           {.gradient = kS0}},
          {{.gradient = Placement::sharded(1), .gradient_squares = kR, .weight_squares = kR, .scalars = kR},
           {.gradient = Placement::sharded(1)}}};
    },
    .in_place = {{"gradient", "gradient"}},
});

void clip_rows(Graph& graph, ValueId parameter, ValueId gradient, ValueId scalars, double limit) {
  if (graph.value(parameter).shape.rank() != 2) return;
  const ValueId gradient_squares = squares_of_rows(graph, gradient);
  const ValueId weight_squares = squares_of_rows(graph, parameter);
  graph::add_into<ClipRows>(graph,
                            {.gradient = gradient,
                             .gradient_squares = gradient_squares,
                             .weight_squares = weight_squares,
                             .scalars = scalars},
                            {.gradient = gradient}, {.limit = limit});
}

}  // namespace strata::optim
