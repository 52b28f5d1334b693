#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "base/error.h"
#include "graph/reshard.h"
#include "optim/muon/muon.h"
#include "optim/update_rules.h"

namespace strata::optim {
namespace {

// For the three matmuls of each step: x xᵀ, its square, and x times the polynomial.
double flops_of_matmuls(int64_t rows, int64_t columns, int64_t steps) {
  const auto n = static_cast<double>(std::min(rows, columns));
  const auto m = static_cast<double>(std::max(rows, columns));
  return static_cast<double>(steps) * 2 * n * n * (2 * m + n);
}

// The scale of the update must not apply to the decay.
UpdateRule scaled(const UpdateRule& rule, const Shape& shape) {
  const auto rows = static_cast<double>(shape[0]), columns = static_cast<double>(shape[1]);
  const double scale = rule.optimizer.as<Muon>().scale == MuonScale::kMatchRmsAdamW
                           ? 0.2 * std::sqrt(std::max(rows, columns))
                           : std::sqrt(std::max(1.0, rows / columns));
  UpdateRule out = rule;
  out.lr_scale *= scale;
  out.weight_decay /= scale;
  return out;
}

// --- Sharded matrices: a stack holds one matrix for each rank of an axis, and each rank gets one whole. The
// axis is that of ZeRO's shards if there are any; if another axis cuts the matrices too, its ranks gather
// each matrix and do the same work.

using Slot = MuonStackAttrs::Slot;

// Rows of each matrix of a stack that a rank has. `of`: the values that `operand` indexes.
int64_t rows_of_stack(const MuonStackAttrs& attrs, const std::vector<graph::Ref>& of) {
  int64_t rows = -1;
  for (const Slot& slot : attrs.slots) {
    if (slot.operand < 0) continue;
    STRATA_CHECK(slot.operand < std::ssize(of), "a stack names operand {}, which does not exist",
                 slot.operand);
    const int64_t found = row_range(slot.update, of[static_cast<size_t>(slot.operand)]->shape).rows;
    STRATA_CHECK(rows < 0 || rows == found, "matrices of {} and of {} rows in one stack", rows, found);
    rows = found;
  }
  STRATA_CHECK(rows >= 0, "a stack of no matrix");
  return rows;
}

MuonStackAttrs localize_stack(MuonStackAttrs attrs, const std::vector<graph::Ref>& of,
                              const graph::Mesh& mesh) {
  for (Slot& slot : attrs.slots) {
    if (slot.operand >= 0) slot.update = localized(slot.update, *of[static_cast<size_t>(slot.operand)], mesh);
  }
  return attrs;
}

Outputs<MuonMomentum> infer_momentum(const View<MuonMomentum>& node) {
  const int64_t columns = node.in.gradients[0]->shape[1];
  const auto fits = [&](const graph::Ref& x) { return x->shape.rank() == 2 && x->shape[1] == columns; };
  Outputs<MuonMomentum> out;
  for (size_t i = 0; i < node.in.momenta.size(); ++i) {
    require(node, fits(node.in.gradients[i]) && fits(node.in.momenta[i]),
            "gradients and momenta must be matrices with the parameter's number of columns");
    out.momenta.push_back({DType::kF32, node.in.momenta[i]->shape});
  }
  out.stack = {DType::kF32,
               {std::ssize(node.attrs.slots), rows_of_stack(node.attrs, node.in.gradients), columns}};
  return out;
}

Outputs<MuonApply> infer_muon_apply(const View<MuonApply>& node) {
  Outputs<MuonApply> out;
  for (const graph::Ref& parameter : node.in.parameters)
    out.parameters.push_back({DType::kF32, parameter->shape});
  require(node,
          node.in.stack->shape == Shape{std::ssize(node.attrs.slots),
                                        rows_of_stack(node.attrs, node.in.parameters),
                                        node.in.parameters[0]->shape[1]},
          "the stack must have the rows and columns of each matrix");
  return out;
}

// The place of a value in a list, which it is added to.
int64_t place_in(std::vector<ValueId>& values, ValueId value) {
  const auto found = std::find(values.begin(), values.end(), value);
  if (found == values.end()) values.push_back(value);
  return std::distance(values.begin(), std::find(values.begin(), values.end(), value));
}

std::vector<graph::Id> ids(const std::vector<ValueId>& values) {
  return {values.begin(), values.end()};
}

// Matrices of one size, at most one for each rank of the axis, on their way.
struct Stack {
  Axis axis = {};
  Placement in_parts;  // along it
  graph::Padding padding;
  std::vector<ValueId> parameters;
  MuonStackAttrs applied;
  int64_t steps = 0;
  ValueId whole = kNone;  // this rank's matrix
  ValueId parts = kNone;  // rows of all of them, orthogonal
};

// The axis over which matrices are shared out.
Axis axis_of_stack(const Graph& graph, const Value& parameter) {
  if (parameter.sharding.padding.axis) return *parameter.sharding.padding.axis;
  return *std::find_if(graph::kAllAxes.begin(), graph::kAllAxes.end(), [&](Axis axis) {
    return graph.mesh().size(axis) > 1 && parameter.placements[axis].kind == Placement::Kind::kSharded;
  });
}

// Moves the momenta, and gathers each matrix on one rank; its entries start at `first`.
Stack begin_stack(Graph& graph, ValueId scalars, std::span<const ShardedRows* const> matrices, size_t first) {
  const Value& parameter = graph.value(matrices[0]->parameter);
  Stack stack;
  stack.axis = axis_of_stack(graph, parameter);
  const int64_t ranks = graph.mesh().size(stack.axis);
  stack.padding = parameter.sharding.padding;
  stack.padding.joined.clear();  // each matrix is one
  stack.steps = matrices[0]->attrs.rule.optimizer.as<Muon>().steps;
  stack.applied.slots.resize(static_cast<size_t>(ranks));
  MuonStackAttrs moved = stack.applied;
  std::vector<ValueId> momenta, gradients;
  for (size_t i = 0; i < matrices.size(); ++i) {
    const ShardedRows& one = *matrices[i];
    const size_t slot = (first + i) % moved.slots.size();
    moved.slots[slot] = {place_in(momenta, one.states.front()), one.attrs};
    if (momenta.size() > gradients.size()) gradients.push_back(one.gradient);
    stack.applied.slots[slot] = {place_in(stack.parameters, one.parameter), one.attrs};
  }
  const int64_t rows = row_range(matrices[0]->attrs, parameter.shape).rows;
  const ValueId parts = graph.add_value({.name = fmt::format("muon{}.parts", graph.nodes().size()),
                                         .shape = {ranks, rows, parameter.shape[1]},
                                         .encoding = {},
                                         .sharding = {.padding = stack.padding}});
  add_into<MuonMomentum>(graph, {.momenta = ids(momenta), .gradients = ids(gradients), .scalars = scalars},
                         {.momenta = ids(momenta), .stack = parts}, std::move(moved));
  stack.in_parts = graph.placement(parts, stack.axis);
  stack.whole = graph::reshard(graph, parts, stack.axis, Placement::sharded(0));
  return stack;
}

// Makes this rank's matrix orthogonal, and returns its rows to the ranks.
void orthogonalize(Graph& graph, Stack& stack) {
  ValueId whole = stack.whole;
  for (const Axis axis : graph::kAllAxes) {
    if (axis != stack.axis) whole = graph::reshard(graph, whole, axis, Placement::replicated());
  }
  whole = add<NewtonSchulz>(graph, {.x = whole}, {stack.steps}).orthogonal;
  for (const Axis axis : graph::kAllAxes) {
    if (axis != stack.axis) whole = graph::reshard(graph, whole, axis, graph.placement(stack.whole, axis));
  }
  stack.parts = graph::reshard(graph, whole, stack.axis, stack.in_parts);
  graph.value(stack.parts).sharding.padding = stack.padding;
}

void apply(Graph& graph, ValueId scalars, const Stack& stack) {
  add_into<MuonApply>(graph, {.parameters = ids(stack.parameters), .stack = stack.parts, .scalars = scalars},
                      {.parameters = ids(stack.parameters)}, stack.applied);
}

// What matrices of one stack have in common.
struct Kind {
  int64_t rows, columns, alignment;
  graph::Placements placements;
  Muon constants;
  bool operator==(const Kind&) const = default;
};

void add_stacks(Graph& graph, ValueId scalars, const std::vector<ShardedRows>& all) {
  std::vector<std::pair<Kind, std::vector<const ShardedRows*>>> kinds;
  for (const ShardedRows& one : all) {
    const Value& parameter = graph.value(one.parameter);
    const Kind kind{row_range(one.attrs, parameter.shape).rows, parameter.shape[1],
                    parameter.sharding.padding.alignment, parameter.placements,
                    one.attrs.rule.optimizer.as<Muon>()};
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

// The matmuls need the whole matrix. Along an axis whose ranks have whole matrices each updates its own.
const OpDef MuonUpdate::def = define<MuonUpdate>({
    .name = "muon",
    .family = "update",
    .infer =
        [](const auto& node) {
          require(node, node.in.parameter->shape.rank() == 2, "Muon updates matrices");
          return infer_update(node);
        },
    .cost =
        [](const auto& node) {
          const Shape rows = shape_of_rows(node.attrs, node.in.parameter->shape);
          Cost cost = update_cost(node);
          cost.flops +=
              flops_of_matmuls(rows[0], rows[1], node.attrs.rule.optimizer.template as<Muon>().steps);
          return cost;
        },
    .placements = [](const auto& node, Axis axis) -> Splits<MuonUpdate> {
      const auto& distributed = node.in.parameter->sharding.distributed_axes;
      if (std::find(distributed.begin(), distributed.end(), axis) == distributed.end()) return {};
      return {update_split<MuonUpdate>(kS0)};
    },
    .in_place = {{"parameter", "parameter"}, {"momentum", "momentum"}},
});

const OpDef MuonMomentum::def = define<MuonMomentum>({
    .name = "muon_momentum",
    .family = "update",
    .infer = infer_momentum,
    // Reads the gradient and the momentum, and writes momentum and stack.
    .cost = [](const auto& node) -> Cost {
      const auto elements = static_cast<double>(node.out.stack->shape.elements());
      return {4 * elements, 16 * elements};
    },
    .placements =
        [](const auto&, Axis) {
          Splits<MuonMomentum> splits;
          for (const int dim : {0, 1}) {
            const Placement own = Placement::sharded(dim);
            splits.push_back({{.momenta = own, .gradients = own, .scalars = kR},
                              {.momenta = own, .stack = Placement::sharded(dim + 1)}});
          }
          return splits;
        },
    .localize =
        [](const auto& node) { return localize_stack(node.attrs, node.in.gradients, node.graph.mesh()); },
});

const OpDef NewtonSchulz::def = define<NewtonSchulz>({
    .name = "newton_schulz",
    .family = "update",
    .infer = [](const auto& node) -> Outputs<NewtonSchulz> {
      require(node, node.in.x->shape.rank() == 3, "x must be a stack of matrices");
      return {.orthogonal = {DType::kF32, node.in.x->shape}};
    },
    .cost = [](const auto& node) -> Cost {
      const Shape& x = node.in.x->shape;
      return {static_cast<double>(x[0]) * flops_of_matmuls(x[1], x[2], node.attrs.steps),
              graph::streamed_bytes(node.untyped())};
    },
    .placements = [](const auto&, Axis) -> Splits<NewtonSchulz> {
      return {{{.x = kS0}, {.orthogonal = kS0}}};
    },
    .in_place = {{"orthogonal", "x"}},
});

const OpDef MuonApply::def = define<MuonApply>({
    .name = "muon_apply",
    .family = "update",
    .infer = infer_muon_apply,
    .cost = [](const auto& node) -> Cost {
      const auto elements = static_cast<double>(node.in.stack->shape.elements());
      return {3 * elements, 12 * elements};
    },
    .placements =
        [](const auto&, Axis) {
          Splits<MuonApply> splits;
          for (const int dim : {0, 1}) {
            const Placement own = Placement::sharded(dim);
            splits.push_back({{.parameters = own, .stack = Placement::sharded(dim + 1), .scalars = kR},
                              {.parameters = own}});
          }
          return splits;
        },
    .localize =
        [](const auto& node) { return localize_stack(node.attrs, node.in.parameters, node.graph.mesh()); },
});

void MuonStackAttrs::describe(graph::AttributeText& to) const {
  for (const Slot& slot : slots) {
    to("operand", slot.operand);
    if (slot.operand >= 0) slot.update.describe(to);
  }
}

const Definition Muon::definition{
    .name = "muon",
    .help = "Momentum made orthogonal (Jordan et al. 2024).",
    .keys =
        {{"momentum", &Muon::momentum, "Decay of the momentum.", {.least = 0, .below = 1}},
         {"nesterov", &Muon::nesterov, "Take the gradient's own part once more."},
         {"ns_steps", &Muon::steps, "Iterations of Newton and Schulz.", {.least = 1, .most = 100}},
         {"scale",
          &Muon::scale,
          "Of the update: original: √max(1, rows / columns); match_rms_adamw: 0.2 √max(rows, columns), so "
          "that learning rates of AdamW hold.",
          {.choices = {"original", "match_rms_adamw"}}},
         {"qk_clip",
          &Muon::qk_clip,
          "Greatest attention score: after a step, heads above it get smaller queries and keys (QK-clip, Kimi "
          "K2, with 100); 0: no limit.",
          {.least = 0}}},
    .hidden_matrices = true,
    .unit = Definition::Unit::kMatrix,
    .op = op_of<MuonUpdate>,
    .states = states_of<MuonUpdate>,
    .applied = scaled,
    .add_sharded = add_stacks,
};

}  // namespace strata::optim
