// Shared rules of optimizers: the rules of an op by its signature, and of an optimizer that has one op.
#pragma once

#include <algorithm>

#include "ops/rules.h"
#include "optim/definition.h"

namespace strata::optim {

using graph::add;
using graph::add_into;
using graph::Axis;
using graph::Cost;
using graph::define;
using graph::Graph;
using graph::kNone;
using graph::NodeView;
using graph::OpDef;
using graph::Placement;
using graph::Spec;
using graph::Value;
using graph::ValueId;
using graph::View;
using ops::kP;
using ops::kR;
using ops::kS0;
using ops::Outputs;
using ops::require;
using ops::Splits;

// The shape with this number of rows.
Shape with_rows(Shape shape, int64_t rows);
// The parameter's shape with the rows of the node; of one rank if they are distributed.
Shape shape_of_rows(const UpdateAttrs& attrs, const Shape& parameter);
// Checks that parameter, gradient and states fit a node, whose optimizer wants such states.
void check_update(const NodeView& view, const Value& parameter, const Value& gradient,
                  const std::vector<const Value*>& states, const std::vector<StateSpec>& wanted);
void require_value(const NodeView& view, const Value& value, const Shape& wanted, std::string_view name);
// Attributes on a rank that has a part of the rows: those of any node for rows of a value that is cut as the
// parameter is.
UpdateAttrs localized(const UpdateAttrs& attrs, const Value& like, const graph::Mesh& mesh);
// Whether the ranks of an axis have separate tensors.
bool is_distributed_along(const UpdateAttrs& attrs, const Value& parameter, Axis axis);

// --- For an op by its signature: all operands between the parameter and the gradient are states.

// The states of an optimizer with this op for rows of this shape.
template <typename Op>
std::vector<StateSpec> states_of(const Shape& rows) {
  typename Op::template Out<StateShapes> shapes{};
  if constexpr (requires { Op::states(rows); }) shapes = Op::states(rows);
  std::vector<StateSpec> specs;
  graph::visit(shapes, 0, [&](StateShape& state, auto kind, std::string_view name, size_t, size_t) {
    if (name == "parameter" || kind.many) return;
    if constexpr (!requires { Op::states(rows); }) state.shape = rows;
    specs.push_back({state, name, graph::detail::dtypes_of<typename decltype(kind)::Element>().front()});
  });
  return specs;
}

template <typename Op>
std::vector<const Value*> held_states(const View<Op>& node) {
  std::vector<const Value*> states;
  auto in = node.in;
  graph::visit(in, 0, [&](const graph::Ref& value, auto, std::string_view name, size_t, size_t) {
    if (name != "parameter" && name != "gradient" && name != "scalars") states.push_back(value.value);
  });
  return states;
}

template <typename Op>
Outputs<Op> infer_update(const View<Op>& node) {
  const Value& parameter = *node.in.parameter;
  const std::vector<const Value*> states = held_states(node);
  check_update(node.untyped(), parameter, *node.in.gradient, states,
               states_of<Op>(shape_of_rows(node.attrs, parameter.shape)));
  Outputs<Op> out;
  auto state = states.begin();
  graph::visit(out, 0, [&](auto& spec, auto kind, std::string_view name, size_t, size_t) {
    if constexpr (!kind.many) {
      const Value& over = name == "parameter" ? parameter : **state++;
      spec = {over.dtype, over.shape};
    }
  });
  return out;
}

// FLOPs for each element of the node's rows, and bytes: passes over parameter and gradient, and the rows'
// share of the states, read and written once.
struct UpdateWork {
  double flops = 2, parameter_passes = 2, gradient_passes = 1;
};
Cost cost_of_rows(const UpdateAttrs& attrs, const Shape& parameter, const std::vector<const Value*>& states,
                  const Value& scalars, const UpdateWork& work);
template <typename Op>
Cost update_cost(const View<Op>& node, const UpdateWork& work = {}) {
  Cost cost = cost_of_rows(node.attrs, node.in.parameter->shape, held_states(node), *node.in.scalars, work);
  if constexpr (requires { node.out.encodings; }) {
    for (const graph::Ref& written : node.out.encodings) cost.bytes += static_cast<double>(written->bytes());
  }
  return cost;
}

// All operands in shards but the scalars.
template <typename Op>
graph::Split<Op> update_split(Placement shard) {
  graph::Split<Op> split = ops::split_alike<Op>(shard);
  split.in.scalars = kR;
  return split;
}
// A shard along any dimension is updated independently; states are placed like the parameter.
template <typename Op>
Splits<Op> placements_by_element(const View<Op>& node, Axis) {
  Splits<Op> splits;
  for (int dim = 0; dim < node.in.parameter->shape.rank(); ++dim)
    splits.push_back(update_split<Op>(Placement::sharded(dim)));
  return splits;
}

template <typename Op>
UpdateAttrs localize_update(const View<Op>& node) {
  return localized(node.attrs, *node.in.parameter, node.graph.mesh());
}

// --- Of an optimizer

template <typename Op>
const OpDef& op_of(const Shape&) {
  return Op::def;
}

// Calls each(tensors) for those of a layer after the other.
template <typename Each>
void for_each_layer(const std::vector<ShardedRows>& all, const Each& each) {
  for (auto begin = all.begin(); begin != all.end();) {
    const auto end =
        std::find_if(begin, all.end(), [&](const ShardedRows& one) { return one.layer != begin->layer; });
    each(std::vector<ShardedRows>(begin, end));
    begin = end;
  }
}

}  // namespace strata::optim
