#include "optim/adamw.h"

#include <cmath>
#include <numeric>

#include "base/error.h"

namespace strata::optim {

using graph::Cost;
using graph::Graph;
using graph::kNone;
using graph::NodeView;
using graph::OpDef;
using graph::Placement;
using graph::PlacementOption;
using graph::Role;
using graph::Value;
using graph::ValueId;
using graph::ValueSpec;

namespace {

std::vector<ValueSpec> infer_squares(const NodeView& view) {
  return {{"partials", DType::kF64, {(view.in(0).shape.elements() + kNormBlock - 1) / kNormBlock}}};
}

std::vector<ValueSpec> infer_scalars(const NodeView& view) {
  if (view.in(0).shape != Shape{kScalarBytes})
    graph::shape_error(view, "the first input must be the hyper-parameters");
  return {{"scalars", DType::kU8, {kScalarBytes}}, {"norm", DType::kF32, {1}}};
}

std::vector<ValueSpec> infer_root(const NodeView&) {
  return {{"norm", DType::kF32, {1}}};
}

std::vector<ValueSpec> infer_adamw(const NodeView& view) {
  std::vector<ValueSpec> specs;
  for (int i = 0; i < 4; ++i) {
    if (view.in(i).shape != view.in(0).shape)
      graph::shape_error(view, "parameter, moments and gradient must have one shape");
    if (i < 3) specs.push_back({"updated", DType::kF32, view.in(0).shape});
  }
  return specs;
}

Cost cost_streamed(const NodeView& view) {
  return {2 * static_cast<double>(view.in(0).shape.elements()), graph::streamed_bytes(view)};
}

// Placements of optimizer state belong to the sharding of parameters; a shard along any dimension is updated
// alone.
std::vector<PlacementOption> placements_adamw(const NodeView& view) {
  std::vector<PlacementOption> options;
  for (int dim = 0; dim < view.in(0).shape.rank(); ++dim) {
    const Placement shard = Placement::sharded(dim);
    options.push_back({{shard, shard, shard, shard, Placement::replicated()}, {shard, shard, shard}});
  }
  return options;
}

std::vector<PlacementOption> placements_squares(const NodeView& view) {
  std::vector<PlacementOption> options;
  for (int dim = 0; dim < view.in(0).shape.rank(); ++dim)
    options.push_back({{Placement::sharded(dim)}, {Placement::partial()}});
  return options;
}

std::vector<PlacementOption> placements_none(const NodeView&) {
  return {};
}

ValueId add_named(Graph& graph, std::string name, DType dtype, Shape shape, Role role) {
  Value value;
  value.name = std::move(name);
  value.dtype = dtype;
  value.shape = shape;
  value.role = role;
  return graph.add_value(std::move(value));
}

}  // namespace

const OpDef kSumOfSquares{"sum_of_squares", "update", infer_squares, cost_streamed, placements_squares};
const OpDef kUpdateScalars{"update_scalars", "update", infer_scalars, cost_streamed, placements_none};
const OpDef kRootOfSum{"root_of_sum", "update", infer_root, cost_streamed, placements_none};
const OpDef kAdamW{
    "adamw", "update", infer_adamw, cost_streamed, placements_adamw, nullptr, {{0, 0}, {1, 1}, {2, 2}}};

void AdamWAttrs::describe(graph::AttributeText& to) const {
  to("weight_decay", weight_decay);
  to("lr_scale", lr_scale);
  if (part_rows.empty()) return;
  to("part_rows", part_rows);
  to("part_scales", part_scales);
}

std::vector<UpdatePart> update_parts(const AdamWAttrs& attrs, const Shape& shape) {
  const auto& [weight_decay, lr_scale, rows, scales] = attrs;
  if (rows.empty()) return {{shape.elements(), lr_scale, weight_decay}};
  const double whole = std::accumulate(rows.begin(), rows.end(), 0.0);
  std::vector<UpdatePart> parts;
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto elements =
        static_cast<int64_t>(std::llround(static_cast<double>(shape.elements()) * rows[i] / whole));
    parts.push_back({elements, lr_scale * scales[i], weight_decay / scales[i]});
  }
  return parts;
}

UpdateGraph add_adamw_update(Graph& graph, ValueId token_count, const RuleOf& rule_of) {
  graph.set_phase(graph::Phase::kUpdate);
  UpdateGraph update;
  update.hyper = add_named(graph, "hyper", DType::kU8, {kScalarBytes}, Role::kStep);
  update.scalars = add_named(graph, "scalars", DType::kU8, {kScalarBytes}, Role::kStep);
  update.grad_norm = add_named(graph, "grad_norm", DType::kF32, {1}, Role::kStep);
  update.param_norm = add_named(graph, "param_norm", DType::kF32, {1}, Role::kStep);

  std::vector<ValueId> inputs{update.hyper, token_count};
  for (const auto& parameter : graph.parameters()) {
    STRATA_CHECK(parameter.gradient != kNone, "{} has no gradient", graph.value(parameter.value).name);
    inputs.push_back(graph.add_node(kSumOfSquares, {parameter.gradient})[0]);
  }
  graph.add_node_into(kUpdateScalars, inputs, {update.scalars, update.grad_norm});

  std::vector<ValueId> squares;
  for (const auto& parameter : graph.parameters()) {
    const std::string& name = graph.value(parameter.value).name;
    const Shape shape = graph.value(parameter.value).shape;
    const ValueId first = add_named(graph, "m." + name, DType::kF32, shape, Role::kState);
    const ValueId second = add_named(graph, "v." + name, DType::kF32, shape, Role::kState);
    update.moments.push_back({parameter.value, first, second});
    const ParameterRule rule = rule_of(name, parameter.role);
    AdamWAttrs attrs{.weight_decay = rule.weight_decay, .lr_scale = rule.lr_scale};
    if (!rule.part_scales.empty()) {
      const auto& segments = graph.value(parameter.value).segments;
      STRATA_CHECK(rule.part_scales.size() == segments.size(), "{} has {} parts and {} learning rates", name,
                   segments.size(), rule.part_scales.size());
      attrs.part_rows.assign(segments.begin(), segments.end());
      attrs.part_scales = rule.part_scales;
    }
    graph.add_node_into(kAdamW, {parameter.value, first, second, parameter.gradient, update.scalars},
                        {parameter.value, first, second}, std::move(attrs));
    squares.push_back(graph.add_node(kSumOfSquares, {parameter.value})[0]);
  }
  graph.add_node_into(kRootOfSum, squares, {update.param_norm});
  graph.set_phase(graph::Phase::kForward);
  return update;
}

}  // namespace strata::optim
