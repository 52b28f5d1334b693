// What add_update() asks of an optimizer: internal to this room.
#pragma once

#include <span>
#include <vector>

#include "optim/optimizer.h"

namespace strata::optim {

struct StateSpec {
  std::string_view name;
  DType dtype = DType::kF32;
  Shape shape;
  StateLayout layout = StateLayout::kElements;
  int64_t block = 0;   // elements of the parameter that an entry is for, in the order of memory; 0: not so
  bool whole = false;  // on every rank, also where the parameter lies in shards
};

// Rows of a parameter that lies in shards, for which a node would be.
struct ShardedRows {
  graph::ValueId parameter = graph::kNone, gradient = graph::kNone;
  std::vector<graph::ValueId> states;
  UpdateAttrs attrs;
  int32_t layer = graph::kNone;
};

struct Definition {
  std::string_view name;
  // Which rows a node may be for: any, since elements are updated alone (neighbours share states); one tensor
  // with states of its own; or one matrix, which is a segment of a tensor.
  enum class Unit : uint8_t { kRows, kTensor, kMatrix } unit = Unit::kRows;
  const graph::OpDef& (*op)(const Shape& rows);
  std::vector<StateSpec> (*states)(const Shape& rows);
  // The rule of a node for `rows` as its kernel applies it; nullptr: as it is.
  UpdateRule (*applied)(const UpdateRule& rule, const Shape& rows) = nullptr;
  // The rows that a shard of a tensor comes in multiples of.
  int64_t (*grain)(const Shape& rows) = [](const Shape&) { return int64_t{1}; };
  // Updates all rows that are in shards, where ranks need one another's; nullptr: a rank updates its own by
  // `op`.
  void (*add_sharded)(graph::Graph&, graph::ValueId scalars, const std::vector<ShardedRows>& all) = nullptr;
  // Whether a rank updates its own rows of a parameter in shards by `op` all the same; nullptr: never where
  // there is add_sharded.
  bool (*is_own)(const graph::Graph&, const graph::Value& parameter) = nullptr;
};

extern const Definition kAdamWDefinition, kMuonDefinition, kLionDefinition, kAdafactorDefinition,
    kAdamW8BitDefinition;
// In the order of the types of Optimizer.
std::span<const Definition* const> all_definitions();
const Definition& definition_of(const Optimizer& optimizer);

// The shape with so many rows.
Shape with_rows(Shape shape, int64_t rows);

// What the ops share. Inputs: the parameter, `states` states, its gradient, the scalars.
// The parameter's shape with the rows of the node; of one rank where they are dealt out.
Shape shape_of_rows(const graph::NodeView& view);
// Checks the operands that all optimizers have; states are checked against `wanted`.
std::vector<graph::ValueSpec> infer_update(const graph::NodeView& view, const std::vector<StateSpec>& wanted);
// Of 8-bit AdamW, whose blocks ranks share (adamw8bit_shards.cpp).
void add_adamw8bit_shards(graph::Graph& graph, graph::ValueId scalars, const std::vector<ShardedRows>& all);
// Attributes on a rank that has a part of the rows: those of any node for rows of a value that is cut as the
// parameter is; and of the ops themselves.
UpdateAttrs localized(const UpdateAttrs& attrs, const graph::Value& like, const graph::Mesh& mesh);
graph::Attributes localize_rows(const graph::NodeView& view);
// FLOPs for each element of the node's rows, and bytes: passes over parameter and gradient, and the rows'
// share of the states, read and written once.
graph::Cost update_cost(const graph::NodeView& view, double flops, double parameter_passes,
                        double gradient_passes);
// A shard along any dimension is updated alone; states lie as the parameter does.
std::vector<graph::PlacementOption> placements_by_element(const graph::NodeView& view, graph::Axis);
// Whether the ranks of an axis have tensors of their own.
bool is_dealt_along(const graph::NodeView& view, graph::Axis axis);
std::vector<graph::PlacementOption> placements_whole(const graph::NodeView& view, graph::Axis);

}  // namespace strata::optim
