// 8-bit AdamW of tensors whose blocks ranks share: of columns, of rows that end within a block, on several
// axes. A block is that of one rank, 256 elements in a row of the whole tensor. Its scale is the largest new
// moment of all its elements, so ranks tell each other the largest that they have before anything is rounded.
// Moments lie as the parameter does; scales, four bytes for 256 elements, lie on every rank.
#include <algorithm>
#include <map>

#include "base/error.h"
#include "graph/reshard.h"
#include "optim/definition.h"
#include "optim/operands.h"
#include "tensor/dynamic_map.h"

namespace strata::optim {

using graph::Axis;
using graph::NodeView;
using graph::Placement;
using graph::ValueId;

int64_t TensorShare::size() const {
  int64_t size = 0;
  for (const Part& part : parts) size += part.size;
  return size;
}

graph::Span held_of_part(const TensorShare& share, size_t index, const graph::Coordinates& rank) {
  const TensorShare::Part& part = share.parts[index];
  graph::Span held{0, part.size};
  for (size_t i = 0; i < share.axes.size(); ++i) {
    held.begin = std::min(held.begin + rank[share.axes[i]] * part.shares[i], held.end);
    held.end = std::min(held.begin + part.shares[i], held.end);
  }
  return held;
}

int64_t AdamW8BitShardAttrs::blocks() const {
  return quantization_blocks(rows.size() * columns.size());
}

void AdamW8BitShardAttrs::describe(graph::AttributeText& to) const {
  update.describe(to);
  for (const auto& [name, share] : {std::pair{"row", &rows}, std::pair{"column", &columns}}) {
    for (const Axis axis : share->axes) to(fmt::format("{}_axis", name), name_of(axis));
    for (const TensorShare::Part& part : share->parts) {
      to(fmt::format("{}_part", name), part.size);
      for (const int64_t rows_or_columns : part.shares) to(fmt::format("{}_share", name), rows_or_columns);
    }
  }
  for (size_t i = 0; i < axes.size(); ++i) {
    to("axis", name_of(axes[i]));
    to("ranks", ranks[i]);
  }
}

namespace {

void require_operand(const NodeView& view, int operand, const Shape& wanted, DType dtype,
                     std::string_view name) {
  const graph::Value& value = view.in(operand);
  if (value.shape != wanted || value.dtype != dtype)
    graph::shape_error(view, fmt::format("{} must be {} {}", name, strata::name_of(dtype), wanted.str()));
}

Shape shape_of_largest(const AdamW8BitShardAttrs& attrs) {
  std::vector<int64_t> dims = attrs.ranks;
  dims.push_back(2 * attrs.blocks());
  return Shape(dims);
}

// `like`: the parameter, or its gradient.
void check_moments(const NodeView& view, int like, int m, int rank) {
  const auto& attrs = view.attrs<AdamW8BitShardAttrs>();
  const Shape& shape = view.in(like).shape;
  const Shape held = with_rows(shape, row_range(attrs.update, shape).rows), scales{attrs.blocks()};
  require_operand(view, m, held, DType::kU8, "state m");
  require_operand(view, m + 1, scales, DType::kF32, "state m_scale");
  require_operand(view, m + 2, held, DType::kU8, "state v");
  require_operand(view, m + 3, scales, DType::kF32, "state v_scale");
  graph::require_rank_block(view, rank);
}

std::vector<graph::ValueSpec> infer_largest(const NodeView& view) {
  using Op = AdamW8BitLargestOperands;
  check_moments(view, Op::kGradient, Op::kM, Op::kRank);
  return {{"largest", DType::kF32, shape_of_largest(view.attrs<AdamW8BitShardAttrs>())}};
}

std::vector<graph::ValueSpec> infer_shard(const NodeView& view) {
  using Op = AdamW8BitShardOperands;
  const auto& attrs = view.attrs<AdamW8BitShardAttrs>();
  check_moments(view, Op::kParameter, Op::kM, Op::kRank);
  const Shape& shape = view.in(Op::kParameter).shape;
  require_operand(view, Op::kGradient, shape, DType::kF32, "the gradient");
  const graph::Value& largest = view.in(Op::kLargest);
  if (largest.shape.rank() != static_cast<int>(attrs.ranks.size()) + 1 ||
      largest.shape[-1] != 2 * attrs.blocks())
    graph::shape_error(view, "the largest moments must be those of every block");
  std::vector<graph::ValueSpec> specs{{"updated", DType::kF32, shape}};
  for (int state = Op::kM; state <= Op::kVScale; ++state)
    specs.push_back({"updated", view.in(state).dtype, view.in(state).shape});
  return specs;
}

// FLOPs for each element of the node's rows, passes over parameter and gradient, and over the codes.
graph::Cost cost_of_elements(const NodeView& view, int like, double flops, double passes,
                             double code_passes) {
  const Shape& shape = view.in(like).shape;
  const int64_t rows = row_range(view.attrs<AdamW8BitShardAttrs>().update, shape).rows;
  const auto elements = static_cast<double>(shape[0] > 0 ? rows * (shape.elements() / shape[0]) : 0);
  const auto scales = 8 * static_cast<double>(view.attrs<AdamW8BitShardAttrs>().blocks());
  return {flops * elements, (4 * passes + 2 * code_passes) * elements + 2 * scales};
}

graph::Attributes localize_as(const NodeView& view, int like) {
  auto attrs = view.attrs<AdamW8BitShardAttrs>();
  attrs.update = localized(attrs.update, view.in(like), view.graph.mesh());
  std::fill(attrs.ranks.begin(), attrs.ranks.end(), 1);
  return attrs;
}

constexpr Placement kAll = Placement::replicated();

std::vector<graph::PlacementOption> placements_largest(const NodeView& view, Axis axis) {
  const auto& axes = view.attrs<AdamW8BitShardAttrs>().axes;
  const auto at = std::find(axes.begin(), axes.end(), axis);
  if (at == axes.end()) return {};
  std::vector<graph::PlacementOption> options;
  for (int dim = 0; dim < view.in(AdamW8BitLargestOperands::kGradient).shape.rank(); ++dim) {
    const Placement own = Placement::sharded(dim);
    options.push_back(
        {{own, kAll, own, kAll, own, kAll, kAll}, {Placement::sharded(static_cast<int>(at - axes.begin()))}});
  }
  return options;
}

std::vector<graph::PlacementOption> placements_shard(const NodeView& view, Axis axis) {
  const auto& axes = view.attrs<AdamW8BitShardAttrs>().axes;
  if (std::find(axes.begin(), axes.end(), axis) == axes.end()) return {};
  std::vector<graph::PlacementOption> options;
  for (int dim = 0; dim < view.in(AdamW8BitShardOperands::kParameter).shape.rank(); ++dim) {
    const Placement own = Placement::sharded(dim);
    options.push_back({{own, own, kAll, own, kAll, own, kAll, kAll, kAll}, {own, own, kAll, own, kAll}});
  }
  return options;
}

// What ranks hold of indices [first, first + count) of a dimension.
TensorShare share_of_tensor(const graph::Value& value, int dim, const graph::Mesh& mesh, int64_t first,
                            int64_t count) {
  const auto cuts = graph::cuts_of(value, dim, mesh);
  TensorShare share;
  if (cuts.empty()) {
    share.parts.push_back({count, {}});
    return share;
  }
  for (const graph::AxisCut& of : cuts) {
    STRATA_CHECK(!of.cut.deals && of.cut.apart.empty(), "ranks have parts of {} whole or joined", value.name);
    share.axes.push_back(of.axis);
  }
  const std::vector<int64_t> parts = value.parts(dim);
  int64_t begin = 0;
  for (size_t i = 0; i < parts.size(); begin += parts[i++]) {
    if (begin + parts[i] <= first || begin >= first + count) continue;
    STRATA_CHECK(begin >= first && begin + parts[i] <= first + count,
                 "a tensor of {} ends within a part that ranks share", value.name);
    TensorShare::Part& part = share.parts.emplace_back(TensorShare::Part{parts[i], {}});
    for (const graph::AxisCut& of : cuts) part.shares.push_back(graph::share_of(of.cut, i));
  }
  return share;
}

AdamW8BitShardAttrs attrs_of(const graph::Graph& graph, const ShardedRows& tensor) {
  const graph::Value& value = graph.value(tensor.parameter);
  const RowRange range = row_range(tensor.attrs, value.shape);
  AdamW8BitShardAttrs attrs{.update = tensor.attrs};
  attrs.rows = share_of_tensor(value, 0, graph.mesh(), range.first, range.rows);
  if (value.shape.rank() == 2) {
    attrs.columns = share_of_tensor(value, 1, graph.mesh(), 0, value.shape[1]);
  } else {
    attrs.columns.parts.push_back({value.shape.elements() / value.shape[0], {}});
  }
  for (const Axis axis : graph::kAllAxes) {
    const Placement placement = graph.placement(tensor.parameter, axis);
    if (placement.kind != Placement::Kind::kSharded || graph.mesh().size(axis) == 1) continue;
    STRATA_CHECK(placement.dim < 2 && (placement.dim == 0 || value.shape.rank() == 2), "{} is cut along {}",
                 value.name, str(placement));
    attrs.axes.push_back(axis);
    attrs.ranks.push_back(graph.mesh().size(axis));
  }
  return attrs;
}

// The largest of all ranks, an axis after the other, in one call for those that lie alike.
void gather(graph::Graph& graph, const std::vector<AdamW8BitShardAttrs>& attrs,
            std::vector<ValueId>& largest) {
  std::map<std::vector<Axis>, std::vector<size_t>> alike;
  for (size_t i = 0; i < attrs.size(); ++i) alike[attrs[i].axes].push_back(i);
  for (const auto& [axes, tensors] : alike) {
    for (size_t dim = 0; dim < axes.size(); ++dim) {
      std::vector<ValueId> inputs;
      for (const size_t i : tensors) inputs.push_back(largest[i]);
      const auto whole = graph.add_node(
          graph::kReshard, inputs,
          graph::ReshardAttrs{
              .axis = axes[dim], .from = Placement::sharded(static_cast<int>(dim)), .to = kAll});
      for (size_t i = 0; i < tensors.size(); ++i) largest[tensors[i]] = whole[i];
    }
  }
}

}  // namespace

void add_adamw8bit_shards(graph::Graph& graph, ValueId scalars, const std::vector<ShardedRows>& all) {
  const ValueId rank = graph::rank_block(graph);
  for (size_t begin = 0; begin < all.size();) {
    size_t end = begin + 1;
    while (end < all.size() && all[end].layer == all[begin].layer) ++end;
    std::vector<AdamW8BitShardAttrs> attrs;
    std::vector<ValueId> largest;
    for (size_t i = begin; i < end; ++i) {
      const auto& states = all[i].states;
      attrs.push_back(attrs_of(graph, all[i]));
      largest.push_back(graph.add_node(
          kAdamW8BitLargest, {states[0], states[1], states[2], states[3], all[i].gradient, scalars, rank},
          attrs.back())[0]);
    }
    gather(graph, attrs, largest);
    for (size_t i = begin; i < end; ++i) {
      const auto& states = all[i].states;
      std::vector<ValueId> outputs{all[i].parameter};
      outputs.insert(outputs.end(), states.begin(), states.end());
      std::vector<ValueId> inputs = outputs;
      inputs.insert(inputs.end(), {all[i].gradient, scalars, rank, largest[i - begin]});
      graph.add_node_into(kAdamW8BitShard, inputs, outputs, attrs[i - begin]);
    }
    begin = end;
  }
}

const graph::OpDef kAdamW8BitLargest{
    .name = "adamw8bit_largest",
    .family = "update",
    .infer = infer_largest,
    .cost =
        [](const NodeView& view) {
          return cost_of_elements(view, AdamW8BitLargestOperands::kGradient, 12, 1, 1);
        },
    .placements = placements_largest,
    .localize = [](const NodeView& view) { return localize_as(view, AdamW8BitLargestOperands::kGradient); }};
const graph::OpDef kAdamW8BitShard{
    .name = "adamw8bit_shard",
    .family = "update",
    .infer = infer_shard,
    .cost =
        [](const NodeView& view) {
          return cost_of_elements(view, AdamW8BitShardOperands::kParameter, 40, 3, 2);
        },
    .placements = placements_shard,
    .in_place = {{0, 0}, {1, 1}, {2, 2}, {3, 3}, {4, 4}},
    .localize = [](const NodeView& view) { return localize_as(view, AdamW8BitShardOperands::kParameter); }};

}  // namespace strata::optim
