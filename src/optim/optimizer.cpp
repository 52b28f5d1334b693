#include "optim/optimizer.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <span>

#include "base/error.h"
#include "graph/reshard.h"
#include "graph/shard.h"
#include "optim/definition.h"
#include "optim/norms.h"
#include "optim/operands.h"
#include "optim/router_bias.h"

namespace strata::optim {

using graph::Axis;
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
  return {{"partials",
           DType::kF64,
           {(view.in(SumOfSquaresOperands::kX).shape.elements() + kNormBlock - 1) / kNormBlock}}};
}

std::vector<ValueSpec> infer_scalars(const NodeView& view) {
  if (view.in(UpdateScalarsOperands::kHyper).shape != Shape{kScalarBytes})
    graph::shape_error(view, "the first input must be the hyper-parameters");
  return {{"scalars", DType::kU8, {kScalarBytes}}, {"norm", DType::kF32, {1}}, {"updates", DType::kI64, {1}}};
}

std::vector<ValueSpec> infer_partials(const NodeView&) {
  return {{"sum", DType::kF64, {1}}};
}

std::vector<PlacementOption> placements_partials(const NodeView& view, Axis) {
  return {{std::vector<Placement>(view.node.inputs.size(), Placement::partial()), {Placement::partial()}}};
}

std::vector<ValueSpec> infer_root(const NodeView&) {
  return {{"norm", DType::kF32, {1}}};
}

Cost cost_streamed(const NodeView& view) {
  return {2 * static_cast<double>(view.in(0).shape.elements()), graph::streamed_bytes(view)};
}

std::vector<PlacementOption> placements_squares(const NodeView& view, Axis) {
  std::vector<PlacementOption> options;
  for (int dim = 0; dim < view.in(SumOfSquaresOperands::kX).shape.rank(); ++dim)
    options.push_back({{Placement::sharded(dim)}, {Placement::partial()}});
  return options;
}

}  // namespace

const OpDef kSumOfSquares{"sum_of_squares", "update", infer_squares, cost_streamed, placements_squares};
const OpDef kUpdateScalars{"update_scalars", "update", infer_scalars, cost_streamed, placements_whole};
const OpDef kSumOfPartials{"sum_of_partials", "update", infer_partials, cost_streamed, placements_partials};
const OpDef kRootOfSum{"root_of_sum", "update", infer_root, cost_streamed, placements_whole};

std::span<const Definition* const> all_definitions() {
  static const Definition* const kAll[] = {&kAdamWDefinition, &kMuonDefinition, &kLionDefinition,
                                           &kAdafactorDefinition, &kAdamW8BitDefinition};
  static_assert(std::variant_size_v<Optimizer> == std::size(kAll));
  return kAll;
}

const Definition& definition_of(const Optimizer& optimizer) {
  return *all_definitions()[optimizer.index()];
}

std::string_view name_of(const Optimizer& optimizer) {
  return definition_of(optimizer).name;
}

namespace {

void describe_one(const AdamW&, graph::AttributeText&) {}
void describe_one(const Muon& muon, graph::AttributeText& to) {
  to("momentum", muon.momentum);
  to("nesterov", muon.nesterov);
  to("steps", muon.steps);
}
void describe_one(const Lion& lion, graph::AttributeText& to) {
  to("beta1", lion.beta1);
  to("beta2", lion.beta2);
}
void describe_one(const Adafactor& adafactor, graph::AttributeText& to) {
  to("beta2_decay", adafactor.beta2_decay);
  to("eps1", adafactor.eps1);
  to("eps2", adafactor.eps2);
  to("clip_threshold", adafactor.clip_threshold);
}
void describe_one(const AdamW8Bit&, graph::AttributeText&) {}

}  // namespace

void UpdateAttrs::describe(graph::AttributeText& to) const {
  to("weight_decay", rule.weight_decay);
  to("lr_scale", rule.lr_scale);
  std::visit([&](const auto& optimizer) { describe_one(optimizer, to); }, rule.optimizer);
  if (rows == 0) return;
  to("first_row", first_row);
  to("rows", rows);
  to("of_rows", of_rows);
  to("state_row", state_row);
  to("state_rows", state_rows);
  if (dealt > 1) to("dealt", dealt);
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

UpdateAttrs localized(const UpdateAttrs& whole, const Value& parameter, const graph::Mesh& mesh) {
  UpdateAttrs attrs = whole;
  attrs.dealt = 1;
  // Of a rank's own whole parts they are a rank's already.
  if (attrs.rows == 0 || attrs.of_rows < parameter.shape[0]) return attrs;
  const std::vector<int64_t> parts = graph::parts_shared(parameter, 0, mesh);
  const std::vector<int64_t> held = graph::parts_on_rank(parameter, 0, mesh);
  // Rows lie in whole parts, or in a share of one that no rank has apart.
  const auto place = [&](int64_t row) {
    int64_t begin = 0, at = 0;
    for (size_t i = 0; i < parts.size() && begin < row; ++i) {
      const int64_t inside = std::min(parts[i], row - begin);
      STRATA_CHECK(inside == parts[i] || held[i] == parts[i],
                   "row {} of {} lies within a part that ranks share", row, parameter.name);
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

graph::Attributes localize_rows(const NodeView& view) {
  return localized(view.attrs<UpdateAttrs>(), view.in(UpdateOperands::kParameter), view.graph.mesh());
}

ParameterRule rule_for(const Graph& graph, const graph::Parameter& parameter, const RuleOf& rule_of) {
  const Value& value = graph.value(parameter.value);
  if (parameter.part_of.empty()) return rule_of(value.name, parameter.role);
  const ParameterRule whole = rule_of(parameter.part_of, parameter.role);
  ParameterRule own;
  int64_t begin = -parameter.first_row;
  for (const TensorRule& tensor : whole.tensors) {
    const int64_t end = tensor.rows > 0 ? begin + tensor.rows : value.shape[0];
    const int64_t rows = std::min(end, value.shape[0]) - std::max<int64_t>(begin, 0);
    if (rows > 0) own.tensors.push_back({rows, tensor.rule});
    begin = end;
  }
  if (whole.part_scales.empty()) return own;
  const auto first = whole.part_scales.begin() + static_cast<std::ptrdiff_t>(parameter.first_segment);
  own.part_scales = {first, first + std::ssize(value.segments)};
  return own;
}

Shape with_rows(Shape shape, int64_t rows) {
  shape.set(0, rows);
  return shape;
}

Shape shape_of_rows(const NodeView& view) {
  const Shape& parameter = view.in(UpdateOperands::kParameter).shape;
  const auto& attrs = view.attrs<UpdateAttrs>();
  return with_rows(parameter, row_range(attrs, parameter).rows / attrs.dealt);
}

std::vector<ValueSpec> infer_update(const NodeView& view, const std::vector<StateSpec>& wanted) {
  const Value& parameter = view.in(UpdateOperands::kParameter);
  const RowRange range = row_range(view.attrs<UpdateAttrs>(), parameter.shape);
  const auto gradient = UpdateOperands::kFirstState + static_cast<int>(wanted.size());
  if (view.in(gradient).shape != parameter.shape)
    graph::shape_error(view, "parameter and gradient must have one shape");
  if (range.first < 0 || range.rows < 0 || range.first + range.rows > parameter.shape[0])
    graph::shape_error(view, "the rows must be the parameter's");
  std::vector<ValueSpec> specs{{"updated", DType::kF32, parameter.shape}};
  for (size_t i = 0; i < wanted.size(); ++i) {
    const Value& state = view.in(UpdateOperands::kFirstState + static_cast<int>(i));
    Shape shape = wanted[i].shape;
    // Of the rows that the states are for; only what lies element by element is shared by several nodes.
    shape.set(0, wanted[i].layout == StateLayout::kElements ? range.state_rows
                                                            : shape[0] * view.attrs<UpdateAttrs>().dealt);
    if (state.shape != shape || state.dtype != wanted[i].dtype)
      graph::shape_error(view, fmt::format("state {} must be {} {}", wanted[i].name,
                                           strata::name_of(wanted[i].dtype), shape.str()));
    specs.push_back({"updated", state.dtype, state.shape});
  }
  return specs;
}

Cost update_cost(const NodeView& view, double flops, double parameter_passes, double gradient_passes) {
  const auto elements = static_cast<double>(shape_of_rows(view).elements() * view.attrs<UpdateAttrs>().dealt);
  const RowRange range = row_range(view.attrs<UpdateAttrs>(), view.in(UpdateOperands::kParameter).shape);
  const double share =
      range.state_rows > 0 ? static_cast<double>(range.rows) / static_cast<double>(range.state_rows) : 0;
  Cost cost{flops * elements, 4 * elements * (parameter_passes + gradient_passes)};
  const auto inputs = static_cast<int>(view.node.inputs.size());
  for (int i = UpdateOperands::kFirstState; i < inputs - UpdateOperands::kBehindStates; ++i)
    cost.bytes += 2 * share * static_cast<double>(view.in(i).bytes());
  cost.bytes += static_cast<double>(view.in(inputs - 1).bytes());
  for (const graph::ValueId output : view.node.outputs) {  // encodings that are written besides
    const graph::Value& value = view.graph.value(output);
    if (value.role == graph::Role::kEncoded) cost.bytes += static_cast<double>(value.bytes());
  }
  return cost;
}

std::vector<PlacementOption> placements_by_element(const NodeView& view, Axis) {
  std::vector<PlacementOption> options;
  const size_t states = view.node.inputs.size() - UpdateOperands::kFirstState - UpdateOperands::kBehindStates;
  for (int dim = 0; dim < view.in(UpdateOperands::kParameter).shape.rank(); ++dim) {
    PlacementOption option;
    option.outputs.assign(states + 1, Placement::sharded(dim));
    option.inputs.assign(states + 2, Placement::sharded(dim));
    option.inputs.push_back(Placement::replicated());
    options.push_back(std::move(option));
  }
  return options;
}

std::vector<PlacementOption> placements_whole(const NodeView&, Axis) {
  return {};
}
bool is_dealt_along(const NodeView& view, Axis axis) {
  const auto& dealt = view.in(UpdateOperands::kParameter).dealt_axes;
  return view.attrs<UpdateAttrs>().dealt > 1 && std::find(dealt.begin(), dealt.end(), axis) != dealt.end();
}

}  // namespace strata::optim
