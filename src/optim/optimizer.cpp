#include "optim/optimizer.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "graph/shard.h"
#include "optim/optimizers.h"
#include "optim/update_rules.h"

namespace strata::optim {

std::span<const Definition* const> optimizers() {
  static const auto kAll = std::apply(
      [](const auto&... each) { return std::array{&std::remove_cvref_t<decltype(each)>::definition...}; },
      Optimizers{});
  return kAll;
}

std::vector<Optimizer> standard_optimizers() {
  return std::apply([](const auto&... each) { return std::vector<Optimizer>{each...}; }, Optimizers{});
}

Optimizer::Optimizer() : Optimizer(AdamW{}) {}

std::string_view name_of(const Optimizer& optimizer) {
  return optimizer.definition().name;
}

void UpdateAttrs::describe(graph::AttributeText& to) const {
  to("weight_decay", rule.weight_decay);
  to("lr_scale", rule.lr_scale);
  rule.optimizer.describe(to);
  if (!rule.storage.is_plain()) {
    to("weights", strata::name_of(rule.storage.weights));
    to("rounding", name_of(rule.storage.rounding));
    to("moments", strata::name_of(rule.storage.moments));
  }
  if (rule.storage.is_stochastic()) {
    to("seed", static_cast<int64_t>(rule.storage.seed));
    to("stream", int64_t{stream});
    to("whole_row", whole_row);
  }
  if (rows == 0) return;
  to("first_row", first_row);
  to("rows", rows);
  to("of_rows", of_rows);
  to("state_row", state_row);
  to("state_rows", state_rows);
  if (distributed > 1) to("distributed", distributed);
}

RowRange row_range(const UpdateAttrs& attrs, const Shape& parameter) {
  if (attrs.rows == 0) return {0, parameter[0], 0, parameter[0]};
  const auto share = [&](int64_t rows) {
    STRATA_CHECK(rows * parameter[0] % attrs.of_rows == 0, "{} rows of {} in a share of {}", rows,
                 attrs.of_rows, parameter[0]);
    return rows * parameter[0] / attrs.of_rows;
  };
  return {share(attrs.first_row), share(attrs.rows), share(attrs.state_row), share(attrs.state_rows)};
}

UpdateElements::UpdateElements(const UpdateAttrs& attrs, const Shape& parameter) {
  const RowRange range = row_range(attrs, parameter);
  columns = parameter[0] > 0 ? parameter.elements() / parameter[0] : 0;
  rows = range.rows;
  first = range.first * columns;
  state_first = range.state_first * columns;
  count = rows * columns;
}

UpdateAttrs localized(const UpdateAttrs& whole, const Value& parameter, const graph::Mesh& mesh) {
  UpdateAttrs attrs = whole;
  attrs.distributed = 1;
  // Of a rank's own whole parts they are a rank's already.
  if (attrs.rows == 0 || attrs.of_rows < parameter.shape[0]) return attrs;
  const std::vector<int64_t> parts = graph::parts_shared(parameter, 0, mesh);
  const std::vector<int64_t> held = graph::parts_on_rank(parameter, 0, mesh);
  // Rows are in whole parts, or in a shard of one that no rank has separately.
  const auto place = [&](int64_t row) {
    int64_t begin = 0, at = 0;
    for (size_t i = 0; i < parts.size() && begin < row; ++i) {
      const int64_t inside = std::min(parts[i], row - begin);
      STRATA_CHECK(inside == parts[i] || held[i] == parts[i],
                   "row {} of {} is within a part that ranks share", row, parameter.name);
      at += inside == parts[i] ? held[i] : inside;
      begin += parts[i];
    }
    return at;
  };
  const int64_t state_begin = whole.first_row - whole.state_row;
  attrs.first_row = place(whole.first_row);
  attrs.rows = place(whole.first_row + whole.rows) - attrs.first_row;
  attrs.of_rows = place(whole.of_rows);
  attrs.state_row = attrs.first_row - place(state_begin);
  attrs.state_rows = place(state_begin + whole.state_rows) - place(state_begin);
  return attrs;
}

ParameterRule rule_for(const Graph& graph, const graph::Parameter& parameter, const RuleOf& rule_of) {
  const Value& value = graph.value(parameter.value);
  if (parameter.part.of.empty()) return rule_of(value.name, parameter.role);
  const ParameterRule whole = rule_of(parameter.part.of, parameter.role);
  ParameterRule own{.tensors = {}, .row_clip = whole.row_clip};
  int64_t begin = -parameter.part.first_row;
  for (const TensorRule& tensor : whole.tensors) {
    const int64_t end = tensor.rows > 0 ? begin + tensor.rows : value.shape[0];
    const int64_t rows = std::min(end, value.shape[0]) - std::max<int64_t>(begin, 0);
    if (rows > 0) own.tensors.push_back({rows, tensor.rule});
    begin = end;
  }
  if (whole.part_scales.empty()) return own;
  const auto first = whole.part_scales.begin() + static_cast<std::ptrdiff_t>(parameter.part.first_segment);
  own.part_scales = {first, first + std::ssize(value.segments)};
  return own;
}

Shape with_rows(Shape shape, int64_t rows) {
  shape.set(0, rows);
  return shape;
}

Shape shape_of_rows(const UpdateAttrs& attrs, const Shape& parameter) {
  return with_rows(parameter, row_range(attrs, parameter).rows / attrs.distributed);
}

void require_value(const NodeView& view, const Value& value, const Shape& wanted, std::string_view name) {
  if (value.shape != wanted)
    graph::shape_error(view,
                       fmt::format("{} must be {} {}", name, strata::name_of(value.dtype), wanted.str()));
}

void check_update(const NodeView& view, const Value& parameter, const Value& gradient,
                  const std::vector<const Value*>& states, const std::vector<StateSpec>& wanted) {
  const auto& attrs = view.attrs<UpdateAttrs>();
  const RowRange range = row_range(attrs, parameter.shape);
  if (gradient.shape != parameter.shape)
    graph::shape_error(view, "parameter and gradient must have one shape");
  if (range.first < 0 || range.rows < 0 || range.first + range.rows > parameter.shape[0])
    graph::shape_error(view, "the rows must be the parameter's");
  for (size_t i = 0; i < wanted.size(); ++i) {
    // The shape for the rows that the states are for; several nodes share only states that are stored element
    // by element.
    const Shape shape = with_rows(wanted[i].shape, wanted[i].layout == StateLayout::kElements
                                                       ? range.state_rows
                                                       : wanted[i].shape[0] * attrs.distributed);
    require_value(view, *states[i], shape, fmt::format("state {}", wanted[i].name));
  }
}

Cost cost_of_rows(const UpdateAttrs& attrs, const Shape& parameter, const std::vector<const Value*>& states,
                  const Value& scalars, const UpdateWork& work) {
  const RowRange range = row_range(attrs, parameter);
  const auto elements = static_cast<double>(shape_of_rows(attrs, parameter).elements() * attrs.distributed);
  const double share =
      range.state_rows > 0 ? static_cast<double>(range.rows) / static_cast<double>(range.state_rows) : 0;
  Cost cost{work.flops * elements, 4 * elements * (work.parameter_passes + work.gradient_passes)};
  for (const Value* state : states) cost.bytes += 2 * share * static_cast<double>(state->bytes());
  cost.bytes += static_cast<double>(scalars.bytes());
  return cost;
}

bool is_distributed_along(const UpdateAttrs& attrs, const Value& parameter, Axis axis) {
  const auto& distributed = parameter.sharding.distributed_axes;
  return attrs.distributed > 1 &&
         std::find(distributed.begin(), distributed.end(), axis) != distributed.end();
}

bool is_optional_state(std::string_view name, char separator) {
  return std::find(kOptionalStates.begin(), kOptionalStates.end(), name.substr(0, name.find(separator))) !=
         kOptionalStates.end();
}

}  // namespace strata::optim
