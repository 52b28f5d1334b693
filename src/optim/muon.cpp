#include <algorithm>
#include <cmath>
#include <span>
#include <string>
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
  return {{"momentum", DType::kF32, rows}};
}

std::vector<graph::ValueSpec> infer(const NodeView& view) {
  if (view.in(UpdateOperands::kParameter).shape.rank() != 2)
    graph::shape_error(view, "Muon updates matrices");
  return infer_update(view, states(shape_of_rows(view)));
}

// Of the three products of each step: x xᵀ, its square, and x times the polynomial.
double flops_of_products(int64_t rows, int64_t columns, int64_t steps) {
  const auto n = static_cast<double>(std::min(rows, columns));
  const auto m = static_cast<double>(std::max(rows, columns));
  return static_cast<double>(steps) * 2 * n * n * (2 * m + n);
}

graph::Cost cost(const NodeView& view) {
  const Shape rows = shape_of_rows(view);
  graph::Cost cost = update_cost(view, 2, 2, 1);
  cost.flops +=
      flops_of_products(rows[0], rows[1], std::get<Muon>(view.attrs<UpdateAttrs>().rule.optimizer).steps);
  return cost;
}

double scale_of(MuonScale scale, const Shape& rows) {
  const auto first = static_cast<double>(rows[0]), second = static_cast<double>(rows[1]);
  if (scale == MuonScale::kMatchRmsAdamW) return 0.2 * std::sqrt(std::max(first, second));
  return std::sqrt(std::max(1.0, first / second));
}

// What the scale does to the update it must not do to the decay.
UpdateRule applied(const UpdateRule& rule, const Shape& rows) {
  const double scale = scale_of(std::get<Muon>(rule.optimizer).scale, rows);
  UpdateRule out = rule;
  out.lr_scale *= scale;
  out.weight_decay /= scale;
  return out;
}

// Along an axis whose ranks have whole matrices each updates its own.
std::vector<graph::PlacementOption> placements_of_matrices(const NodeView& view, Axis axis) {
  const auto& dealt = view.in(UpdateOperands::kParameter).dealt_axes;
  if (std::find(dealt.begin(), dealt.end(), axis) == dealt.end()) return {};
  const Placement own = Placement::sharded(0);
  return {{{own, own, own, Placement::replicated()}, {own, own}}};
}

// --- Matrices in shards: as many as there are ranks of an axis go into a stack, of which each rank gets one
// whole. That is the axis of ZeRO's shards, where there are such; where another one cuts the matrices too,
// its ranks put each together, and do the same work.

using Slot = MuonStackAttrs::Slot;

// Which of a node's operands lies as the parameter of operand i of the slots does.
using Like = int (*)(int i);

// Rows of each matrix of a stack that a rank has.
int64_t rows_of_stack(const NodeView& view, Like like) {
  int64_t rows = -1;
  for (const Slot& slot : view.attrs<MuonStackAttrs>().slots) {
    if (slot.operand < 0) continue;
    const int operand = like(static_cast<int>(slot.operand));
    STRATA_CHECK(view.has(operand), "a slot of operand {}, which is not there", slot.operand);
    const int64_t found = row_range(slot.update, view.in(operand).shape).rows;
    STRATA_CHECK(rows < 0 || rows == found, "matrices of {} and of {} rows in one stack", rows, found);
    rows = found;
  }
  STRATA_CHECK(rows >= 0, "a stack of no matrix");
  return rows;
}

// The values of a stack's matrices come first, `each` of them for one operand of its slots.
int count_of(const NodeView& view, int behind, int each) {
  return (static_cast<int>(view.node.inputs.size()) - behind) / each;
}

std::vector<graph::ValueSpec> infer_momentum(const NodeView& view) {
  using Op = MuonMomentumOperands;
  const auto& attrs = view.attrs<MuonStackAttrs>();
  const Shape& first = view.in(Op::gradient(0)).shape;
  std::vector<graph::ValueSpec> specs;
  for (int i = 0; i < count_of(view, Op::kBehind, Op::kEach); ++i) {
    if (view.in(Op::gradient(i)).shape.rank() != 2 || view.in(Op::gradient(i)).shape[1] != first[1] ||
        view.in(Op::momentum(i)).shape.rank() != 2 || view.in(Op::momentum(i)).shape[1] != first[1])
      graph::shape_error(view, "gradients and momenta must be matrices of as many columns");
    specs.push_back({"momentum", DType::kF32, view.in(Op::momentum(i)).shape});
  }
  const int64_t rows = rows_of_stack(view, Op::gradient);
  specs.push_back({"stack", DType::kF32, {std::ssize(attrs.slots), rows, first[1]}});
  return specs;
}

// Reads the gradient and the momentum, and writes momentum and stack.
graph::Cost cost_momentum(const NodeView& view) {
  const auto elements =
      static_cast<double>(view.out(static_cast<int>(view.node.outputs.size()) - 1).shape.elements());
  return {4 * elements, 16 * elements};
}

std::vector<graph::PlacementOption> placements_momentum(const NodeView& view, Axis) {
  using Op = MuonMomentumOperands;
  const auto count = static_cast<size_t>(count_of(view, Op::kBehind, Op::kEach));
  std::vector<graph::PlacementOption> options;
  for (const int dim : {0, 1}) {
    graph::PlacementOption option{std::vector(Op::kEach * count, Placement::sharded(dim)),
                                  std::vector(count, Placement::sharded(dim))};
    option.inputs.push_back(Placement::replicated());
    option.outputs.push_back(Placement::sharded(dim + 1));
    options.push_back(std::move(option));
  }
  return options;
}

graph::Attributes localize_stack(const NodeView& view, Like like) {
  auto attrs = view.attrs<MuonStackAttrs>();
  for (Slot& slot : attrs.slots) {
    if (slot.operand >= 0)
      slot.update = localized(slot.update, view.in(like(static_cast<int>(slot.operand))), view.graph.mesh());
  }
  return attrs;
}

graph::Attributes localize_momentum(const NodeView& view) {
  return localize_stack(view, MuonMomentumOperands::gradient);
}

std::vector<graph::ValueSpec> infer_products(const NodeView& view) {
  const graph::Value& x = view.in(NewtonSchulzOperands::kX);
  if (x.shape.rank() != 3 || x.dtype != DType::kF32)
    graph::shape_error(view, "x must be a stack of matrices");
  return {{"orthogonal", DType::kF32, x.shape}};
}

graph::Cost cost_products(const NodeView& view) {
  const Shape& x = view.in(NewtonSchulzOperands::kX).shape;
  return {static_cast<double>(x[0]) * flops_of_products(x[1], x[2], view.attrs<NewtonSchulzAttrs>().steps),
          graph::streamed_bytes(view)};
}

std::vector<graph::PlacementOption> placements_products(const NodeView&, Axis) {
  return {{{Placement::sharded(0)}, {Placement::sharded(0)}}};
}

std::vector<graph::ValueSpec> infer_apply(const NodeView& view) {
  using Op = MuonApplyOperands;
  const auto& attrs = view.attrs<MuonStackAttrs>();
  const int count = count_of(view, Op::kBehind, 1);
  std::vector<graph::ValueSpec> specs;
  for (int i = 0; i < count; ++i) specs.push_back({"updated", DType::kF32, view.in(i).shape});
  const int64_t rows = rows_of_stack(view, Op::parameter);
  if (view.in(count).shape != Shape{std::ssize(attrs.slots), rows, view.in(0).shape[1]})
    graph::shape_error(view, "the stack must hold as many rows and columns of each matrix");
  return specs;
}

graph::Cost cost_apply(const NodeView& view) {
  const auto elements =
      static_cast<double>(view.in(static_cast<int>(view.node.outputs.size())).shape.elements());
  return {3 * elements, 12 * elements};
}

std::vector<graph::PlacementOption> placements_apply(const NodeView& view, Axis) {
  const size_t count = view.node.outputs.size();
  std::vector<graph::PlacementOption> options;
  for (const int dim : {0, 1}) {
    graph::PlacementOption option{std::vector(count, Placement::sharded(dim)),
                                  std::vector(count, Placement::sharded(dim))};
    option.inputs.push_back(Placement::sharded(dim + 1));
    option.inputs.push_back(Placement::replicated());
    options.push_back(std::move(option));
  }
  return options;
}

graph::Attributes localize_apply(const NodeView& view) {
  return localize_stack(view, MuonApplyOperands::parameter);
}

// The place of a value in a list, which it is added to.
int64_t place_in(std::vector<graph::ValueId>& values, graph::ValueId value) {
  const auto found = std::find(values.begin(), values.end(), value);
  if (found == values.end()) values.push_back(value);
  return std::distance(values.begin(), std::find(values.begin(), values.end(), value));
}

// Matrices of one size, at most one for each rank of the axis, on their way.
struct Stack {
  Axis axis = {};
  Placement in_parts;  // along it
  graph::Padding padding;
  std::vector<graph::ValueId> parameters;
  MuonStackAttrs applied;
  int64_t steps = 0;
  graph::ValueId whole = graph::kNone;  // this rank's matrix
  graph::ValueId parts = graph::kNone;  // rows of all of them, orthogonal
};

// The axis over which matrices are shared out.
Axis axis_of_stack(const graph::Graph& graph, const graph::Value& parameter) {
  if (parameter.padding.axis) return *parameter.padding.axis;
  return *std::find_if(graph::kAllAxes.begin(), graph::kAllAxes.end(), [&](Axis axis) {
    return graph.mesh().size(axis) > 1 && parameter.placements[axis].kind == Placement::Kind::kSharded;
  });
}

// Moves the momenta, and brings each matrix together on one rank; slots from `first` on are theirs.
Stack begin_stack(graph::Graph& graph, graph::ValueId scalars, std::span<const ShardedRows* const> matrices,
                  size_t first) {
  const graph::Value& parameter = graph.value(matrices[0]->parameter);
  Stack stack;
  stack.axis = axis_of_stack(graph, parameter);
  const int64_t ranks = graph.mesh().size(stack.axis);
  stack.padding = parameter.padding;
  stack.padding.joined.clear();  // each matrix is one
  stack.steps = std::get<Muon>(matrices[0]->attrs.rule.optimizer).steps;
  stack.applied.slots.resize(static_cast<size_t>(ranks));
  MuonStackAttrs moved = stack.applied;
  std::vector<graph::ValueId> momenta, inputs;
  for (size_t i = 0; i < matrices.size(); ++i) {
    const ShardedRows& one = *matrices[i];
    const size_t slot = (first + i) % moved.slots.size();
    if (std::find(momenta.begin(), momenta.end(), one.states[0]) == momenta.end())
      inputs.insert(inputs.end(), {one.states[0], one.gradient});
    moved.slots[slot] = {place_in(momenta, one.states[0]), one.attrs};
    stack.applied.slots[slot] = {place_in(stack.parameters, one.parameter), one.attrs};
  }
  inputs.push_back(scalars);
  const int64_t rows = row_range(matrices[0]->attrs, parameter.shape).rows;
  const graph::ValueId parts = graph.add_value({.name = fmt::format("muon{}.parts", graph.nodes().size()),
                                                .shape = {ranks, rows, parameter.shape[1]},
                                                .encoding = {},
                                                .padding = stack.padding});
  std::vector<graph::ValueId> outputs = momenta;
  outputs.push_back(parts);
  graph.add_node_into(kMuonMomentum, std::move(inputs), std::move(outputs), std::move(moved));
  stack.in_parts = graph.placement(parts, stack.axis);
  stack.whole = graph::reshard(graph, parts, stack.axis, Placement::sharded(0));
  return stack;
}

// Makes this rank's matrix orthogonal, and gives its rows back.
void orthogonalize(graph::Graph& graph, Stack& stack) {
  graph::ValueId whole = stack.whole;
  for (const Axis axis : graph::kAllAxes) {
    if (axis != stack.axis) whole = graph::reshard(graph, whole, axis, Placement::replicated());
  }
  whole = graph.add_node(kNewtonSchulz, {whole}, NewtonSchulzAttrs{stack.steps})[0];
  for (const Axis axis : graph::kAllAxes) {
    if (axis != stack.axis) whole = graph::reshard(graph, whole, axis, graph.placement(stack.whole, axis));
  }
  stack.parts = graph::reshard(graph, whole, stack.axis, stack.in_parts);
  graph.value(stack.parts).padding = stack.padding;
}

void apply(graph::Graph& graph, graph::ValueId scalars, const Stack& stack) {
  std::vector<graph::ValueId> inputs = stack.parameters;
  inputs.insert(inputs.end(), {stack.parts, scalars});
  graph.add_node_into(kMuonApply, std::move(inputs), stack.parameters, stack.applied);
}

// What matrices of one stack have in common.
struct Kind {
  int64_t rows, columns, grain;
  graph::Placements placements;
  Muon constants;
  bool operator==(const Kind&) const = default;
};

void add_sharded(graph::Graph& graph, graph::ValueId scalars, const std::vector<ShardedRows>& all) {
  std::vector<std::pair<Kind, std::vector<const ShardedRows*>>> kinds;
  for (const ShardedRows& one : all) {
    const graph::Value& parameter = graph.value(one.parameter);
    const Kind kind{row_range(one.attrs, parameter.shape).rows, parameter.shape[1], parameter.padding.grain,
                    parameter.placements, std::get<Muon>(one.attrs.rule.optimizer)};
    auto found =
        std::find_if(kinds.begin(), kinds.end(), [&](const auto& known) { return known.first == kind; });
    if (found == kinds.end()) found = kinds.insert(found, {kind, {}});
    found->second.push_back(&one);
  }
  const Axis axis = axis_of_stack(graph, graph.value(all[0].parameter));
  const auto ranks = static_cast<size_t>(graph.mesh().size(axis));
  std::vector<std::span<const ShardedRows* const>> groups;
  for (const auto& one : kinds) {
    const std::span<const ShardedRows* const> list(one.second);
    for (size_t at = 0; at < list.size(); at += ranks)
      groups.push_back(list.subspan(at, std::min(ranks, list.size() - at)));
  }
  // While ranks are at one stack, the next is on its way to them, and the last on its way back.
  std::vector<Stack> stacks;
  size_t first = 0;  // stacks that are not full leave other ranks idle in turn
  for (size_t i = 0; i < groups.size() + 2; ++i) {
    if (i < groups.size()) {
      stacks.push_back(begin_stack(graph, scalars, groups[i], first));
      first = (first + groups[i].size()) % ranks;
    }
    if (i >= 1 && i <= groups.size()) orthogonalize(graph, stacks[i - 1]);
    if (i >= 2) apply(graph, scalars, stacks[i - 2]);
  }
}

}  // namespace

// The products need the whole matrix.
const graph::OpDef kMuon{"muon", "update", infer, cost, placements_of_matrices, nullptr, {{0, 0}, {1, 1}}};
const graph::OpDef kMuonMomentum{.name = "muon_momentum",
                                 .family = "update",
                                 .infer = infer_momentum,
                                 .cost = cost_momentum,
                                 .placements = placements_momentum,
                                 .localize = localize_momentum};
const graph::OpDef kNewtonSchulz{.name = "newton_schulz",
                                 .family = "update",
                                 .infer = infer_products,
                                 .cost = cost_products,
                                 .placements = placements_products,
                                 .in_place = {{0, 0}}};
const graph::OpDef kMuonApply{.name = "muon_apply",
                              .family = "update",
                              .infer = infer_apply,
                              .cost = cost_apply,
                              .placements = placements_apply,
                              .localize = localize_apply};

void MuonStackAttrs::describe(graph::AttributeText& to) const {
  for (const Slot& slot : slots) {
    to("operand", slot.operand);
    if (slot.operand >= 0) slot.update.describe(to);
  }
}

const Definition kMuonDefinition{.name = "muon",
                                 .unit = Definition::Unit::kMatrix,
                                 .op = [](const Shape&) -> const graph::OpDef& { return kMuon; },
                                 .states = states,
                                 .applied = applied,
                                 .add_sharded = add_sharded};

}  // namespace strata::optim
