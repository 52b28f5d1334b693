#include <algorithm>
#include <numeric>

#include "optim/definition.h"
#include "optim/operands.h"

namespace strata::optim {

using graph::Axis;
using graph::NodeView;
using graph::Placement;

namespace {

constexpr int64_t kBlock = 256;

std::vector<StateSpec> states(const Shape& rows) {
  const Shape blocks{(rows.elements() + kBlock - 1) / kBlock};
  return {{"m", DType::kU8, rows, StateLayout::kTensor},
          {"m_scale", DType::kF32, blocks, StateLayout::kTensor, kBlock},
          {"v", DType::kU8, rows, StateLayout::kTensor},
          {"v_scale", DType::kF32, blocks, StateLayout::kTensor, kBlock}};
}

std::vector<graph::ValueSpec> infer(const NodeView& view) {
  return infer_update(view, states(shape_of_rows(view)));
}

graph::Cost cost(const NodeView& view) {
  return update_cost(view, 40, 2, 1);
}

// By rows that end where blocks do, or by whole tensors.
std::vector<graph::PlacementOption> placements(const NodeView& view, Axis axis) {
  const graph::Value& parameter = view.in(UpdateOperands::kParameter);
  const Shape& shape = parameter.shape;
  const bool ends_with_blocks =
      shape.elements() / shape[0] * std::max<int64_t>(1, parameter.padding.grain) % kBlock == 0;
  if (!ends_with_blocks && !is_dealt_along(view, axis)) return {};
  const Placement shard = Placement::sharded(0);
  return {{{shard, shard, shard, shard, shard, shard, Placement::replicated()},
           {shard, shard, shard, shard, shard}}};
}

// Cut by nothing but the axis whose shards end where blocks do.
bool is_own(const graph::Graph& graph, const graph::Value& parameter) {
  return std::none_of(graph::kAllAxes.begin(), graph::kAllAxes.end(), [&](Axis axis) {
    return parameter.placements[axis].kind == Placement::Kind::kSharded && graph.mesh().size(axis) > 1 &&
           axis != parameter.padding.axis;
  });
}

}  // namespace

const graph::OpDef kAdamW8Bit{
    "adamw8bit", "update",     infer, cost, placements, nullptr, {{0, 0}, {1, 1}, {2, 2}, {3, 3}, {4, 4}},
    nullptr,     localize_rows};

const Definition kAdamW8BitDefinition{.name = "adamw8bit",
                                      .unit = Definition::Unit::kTensor,
                                      .op = [](const Shape&) -> const graph::OpDef& { return kAdamW8Bit; },
                                      .states = states,
                                      .grain =
                                          [](const Shape& rows) {
                                            const int64_t columns = rows.elements() / rows[0];
                                            return kBlock / std::gcd(columns, kBlock);
                                          },
                                      .add_sharded = add_adamw8bit_shards,
                                      .is_own = is_own};

}  // namespace strata::optim
