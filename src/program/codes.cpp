#include "program/codes.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "graph/reshard.h"
#include "graph/shard.h"
#include "ops/jitter/jitter.h"

namespace strata::program {

using graph::Axis;
using graph::Graph;
using graph::kNone;
using graph::Phase;
using graph::Placement;
using graph::Role;
using graph::Value;
using graph::ValueId;
using quantize::ScaleRule;

namespace {

// More than a layer has gradients.
constexpr int64_t kStreamsOfLayer = 1024;

}  // namespace

void mark(Graph& graph, const Marks& marks) {
  graph.set_phase(marks.phase);
  graph.set_layer(marks.layer);
  graph.set_chunk(marks.chunk);
}

Codes QuantizedTensor::read(const quantize::QuantizedOperand& operand, Direction direction) const {
  if (direction == Direction::kRows) return rows;
  if (operand.along_columns) return columns;
  Codes codes = rows;
  codes.attrs.across = true;
  return codes;
}

QuantizedTensor CodeMaker::make(ValueId x, const quantize::QuantizedOperand& operand, bool rows, bool columns,
                                const Marks& marks, const Handling& handling) {
  if (rows) check_cuts(x, operand.along_rows, 0);
  if (columns) check_cuts(x, *operand.along_columns, 1);
  ops::QuantizeAttrs attrs;
  if (rows) attrs.along_rows = operand.along_rows;
  if (columns) attrs.along_columns = operand.along_columns;
  attrs.transforms_columns = handling.transforms_columns;
  const bool encodes = marks.phase == Phase::kEncode;
  const std::vector<Axis> distributed = graph_.value(x).sharding.distributed_axes;
  mark(graph_, marks);
  ValueId places = kNone, rank = kNone;
  if (handling.stochastic) {
    attrs.stochastic = true;
    attrs.stream = kStreamsOfLayer * (marks.layer + 1) + streams_[marks.layer]++;
    places = handling.places != kNone ? handling.places : places_of_rows(x, marks);
    for (const Axis axis : graph::kAllAxes) {
      if (graph_.mesh().size(axis) > 1 && graph_.placement(x, axis) == Placement::sharded(1))
        rank = graph::rank_block(graph_);
    }
  }
  const bool is_delayed = handling.history != kNone;
  if (handling.finds_greatest) attrs.greatest_parts = parts_of(x, attrs.along_rows, 0);
  const auto [row_greatest, column_greatest] =
      is_delayed ? std::pair{handling.history, ValueId{kNone}} : greatest_of(x, attrs);
  const auto made = graph::add<ops::Quantize>(graph_,
                                              {.x = x,
                                               .row_greatest = row_greatest,
                                               .column_greatest = column_greatest,
                                               .places = places,
                                               .rank = rank},
                                              attrs);
  const auto keep = [&](ValueId id, std::string_view what) {
    if (id == kNone) return;
    distribute(id, distributed);
    if (!encodes) return;
    Value& value = graph_.value(id);
    value.role = Role::kEncoded;
    value.producer = kNone;
    // Cut as the parameter is: along the shard axis after all others.
    if (graph_.value(x).sharding.padding.axis == Axis::kShard) value.sharding.padding.axis = Axis::kShard;
    value.name = fmt::format("{}@{}", graph_.value(x).name, what);
  };
  keep(made.row_codes, "codes");
  keep(made.row_scales, "scales");
  keep(made.column_codes, "column_codes");
  keep(made.column_scales, "column_scales");
  QuantizedTensor all{
      {{operand.along_rows}, made.row_codes, made.row_scales},
      {{columns ? *operand.along_columns : operand.along_rows}, made.column_codes, made.column_scales},
      made.greatest};
  all.rows.stream = attrs.stream;
  all.rows.places = places;
  all.rows.rank = rank;
  // Matmuls read it only if it is part of the scales.
  const auto is_read = [](const ScaleRule& rule) { return rule.scale_type() == quantize::ScaleType::kE4M3; };
  if (rows && is_read(operand.along_rows)) {
    all.rows.greatest = row_greatest;
    keep(row_greatest, "greatest");
  }
  if (columns && is_read(*operand.along_columns)) {
    all.columns.greatest = column_greatest;
    keep(column_greatest, "column_greatest");
  }
  return all;
}

void CodeMaker::distribute(ValueId id, const std::vector<Axis>& axes) {
  Value& value = graph_.value(id);
  if (value.segments.empty()) return;
  for (const Axis axis : axes) {
    if (value.placements[axis] == Placement::sharded(value.segment_dim()))
      value.sharding.distributed_axes.push_back(axis);
  }
}

ValueId CodeMaker::places_of_rows(ValueId x, const Marks& marks) {
  const ValueId samples = graph_.column(Column::kSamples);
  const int64_t rows = graph_.value(x).shape[0];
  if (samples == kNone || graph_.value(samples).shape[0] * sequence_length_ != rows) {
    throw ConfigError(
        "[{}] {} rounds gradients by the places of tokens in their samples, which {} rows of {} do not have; take "
        "another recipe",
        words_.recipe, recipe_name_, rows, graph_.value(x).name);
  }
  const auto is_cut = [&](Axis axis) { return graph_.placement(x, axis) == Placement::sharded(0); };
  const bool by_context = is_cut(Axis::kContext), by_tensor = is_cut(Axis::kTensor);
  const auto [slot, is_new] =
      places_.try_emplace({by_context, by_tensor, static_cast<int>(marks.phase), marks.chunk}, kNone);
  if (!is_new) return slot->second;
  ValueId places = graph::add<ops::SamplePlaces>(graph_, {.samples = samples}, {sequence_length_}).places;
  if (by_context)
    places = graph::reshard(graph_, places, Axis::kContext, Placement::sharded(0), sequence_length_);
  if (by_tensor) places = graph::reshard(graph_, places, Axis::kTensor, Placement::sharded(0));
  return slot->second = places;
}

ValueId CodeMaker::found_in(ValueId x, const ScaleRule& rule, const Marks& marks) {
  mark(graph_, marks);
  return graph::add<ops::GreatestMagnitudes>(graph_, {.x = x},
                                             {.along_rows = rule, .row_parts = parts_of(x, rule, 0)})
      .of_rows;
}

std::vector<ValueId> CodeMaker::greatest_of_ranks(std::vector<ValueId> found) {
  for (auto axis = graph::kAllAxes.rbegin(); axis != graph::kAllAxes.rend(); ++axis) {
    std::vector<std::vector<size_t>> groups;
    for (size_t i = 0; i < found.size(); ++i) {
      if (graph_.mesh().size(*axis) == 1 || graph_.placement(found[i], *axis) != Placement::sharded(0))
        continue;
      const auto alike = std::find_if(groups.begin(), groups.end(), [&](const auto& group) {
        return graph_.value(found[group[0]]).placements == graph_.value(found[i]).placements;
      });
      if (alike == groups.end()) {
        groups.push_back({i});
      } else {
        alike->push_back(i);
      }
    }
    for (const std::vector<size_t>& group : groups) {
      graph::InIds<graph::Reshard> in;
      for (const size_t i : group) in.x.push_back(found[i]);
      const auto moved =
          graph::add<graph::Reshard>(
              graph_, in, {.axis = *axis, .from = Placement::sharded(0), .to = Placement::replicated()})
              .moved;
      for (size_t i = 0; i < group.size(); ++i) found[group[i]] = moved[i];
    }
  }
  for (ValueId& one : found)
    if (graph_.value(one).shape[0] > 1)
      one = graph::add<ops::GreatestOfRanks>(graph_, {.found = one}).greatest;
  return found;
}

int64_t CodeMaker::parts_of(ValueId x, const std::optional<ScaleRule>& rule, int own_dim) const {
  int64_t count = 1;
  for (const Axis axis : graph::kAllAxes) {
    const Placement placement = graph_.placement(x, axis);
    if (placement.kind != Placement::Kind::kSharded) continue;
    const bool is_of_rows = rule && rule->needs() == ScaleRule::Needs::kRows && placement.dim == own_dim;
    if (!is_of_rows) count *= graph_.mesh().size(axis);
  }
  return count;
}

std::pair<ValueId, ValueId> CodeMaker::greatest_of(ValueId x, const ops::QuantizeAttrs& attrs) {
  const auto needs = [](const std::optional<ScaleRule>& rule) {
    return rule && rule->needs() != ScaleRule::Needs::kNothing;
  };
  if (!needs(attrs.along_rows) && !needs(attrs.along_columns)) return {kNone, kNone};
  ops::GreatestAttrs of{.along_rows = attrs.along_rows,
                        .along_columns = attrs.along_columns,
                        .transforms_columns = attrs.transforms_columns};
  of.row_parts = parts_of(x, of.along_rows, 0);
  of.column_parts = parts_of(x, of.along_columns, 1);
  const std::vector<Axis> distributed = graph_.value(x).sharding.distributed_axes;
  const auto found = graph::add<ops::GreatestMagnitudes>(graph_, {.x = x}, of);
  const auto reduced = [&](ValueId own, int64_t ranks) {
    if (own != kNone) distribute(own, distributed);
    if (own == kNone || ranks == 1) return own;
    for (auto axis = graph::kAllAxes.rbegin(); axis != graph::kAllAxes.rend(); ++axis) {
      if (graph_.placement(own, *axis) == Placement::sharded(0))
        own = graph::reshard(graph_, own, *axis, Placement::replicated());
    }
    const ValueId greatest = graph::add<ops::GreatestOfRanks>(graph_, {.found = own}).greatest;
    distribute(greatest, distributed);
    return greatest;
  };
  return {reduced(found.of_rows, of.row_parts), reduced(found.of_columns, of.column_parts)};
}

void CodeMaker::check_cuts(ValueId x, const ScaleRule& rule, int first) const {
  const Value& value = graph_.value(x);
  for (const int dim : {0, 1}) {
    const int64_t extent = dim == first ? rule.block().rows : rule.block().columns;
    if (extent == 1 || extent == quantize::kWhole) continue;
    for (const Axis axis : graph::kAllAxes) {
      if (graph_.mesh().size(axis) == 1 || value.placements[axis] != Placement::sharded(dim)) continue;
      if (axis == Axis::kContext && dim == 0 && value.role == Role::kActivation) {
        check_part(sequence_length_ / (2 * graph_.mesh().size(axis)), extent, axis, value,
                   "consecutive tokens of a sequence");
        continue;
      }
      const std::vector<int64_t> parts = graph::parts_on_rank(value, dim, graph_.mesh());
      const auto& distributed = value.sharding.distributed_axes;
      if (std::find(distributed.begin(), distributed.end(), axis) != distributed.end()) {
        check_experts(std::accumulate(parts.begin(), parts.end(), int64_t{0}), extent, value);
        continue;
      }
      for (const int64_t part : parts)
        check_part(part, extent, axis, value,
                   dim == 0 && value.role == Role::kActivation ? "tokens" : "columns");
    }
  }
}

void CodeMaker::check_experts(int64_t rows, int64_t extent, const Value& value) const {
  if (rows % extent == 0) return;
  throw ConfigError(
      "[{}] the recipe {} has one scale for {} consecutive outputs, and the experts of a rank have {} in {}: "
      "scales would depend on the layout; take experts whose outputs together are a multiple of {}, a smaller {}, "
      "or the recipe row or tensor, which have no blocks",
      words_.recipe, recipe_name_, extent, rows, value.name, extent, words_.expert);
}

void CodeMaker::check_part(int64_t part, int64_t extent, Axis axis, const Value& value,
                           std::string_view of) const {
  if (part % extent == 0) return;
  const std::string_view key = axis == Axis::kTensor    ? words_.tensor
                               : axis == Axis::kContext ? words_.context
                                                        : words_.micro_batch;
  throw ConfigError(
      "[{}] the recipe {} has one scale for {} {}, and a rank has {} of {}: scales would depend on the layout; "
      "take sizes or degrees that leave each rank a multiple of {} ({}, {}), or the recipe row or tensor, which have no "
      "blocks",
      words_.recipe, recipe_name_, extent, of, part, value.name, extent, key, words_.sequence_length);
}

}  // namespace strata::program
