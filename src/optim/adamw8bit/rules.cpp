#include <map>
#include <numeric>

#include "base/error.h"
#include "graph/reshard.h"
#include "optim/adamw8bit/adamw8bit.h"
#include "optim/update_rules.h"
#include "tensor/dynamic_map.h"

namespace strata::optim {

AdamW8BitUpdate::Out<StateShapes> AdamW8BitUpdate::states(const Shape& rows) {
  const StateShape codes{rows, StateLayout::kTensor};
  const StateShape scales{{quantization_blocks(rows.elements())}, StateLayout::kTensor, kQuantizationBlock};
  return {.parameter = {}, .m = codes, .m_scale = scales, .v = codes, .v_scale = scales};
}

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

Shape shape_of_largest(const AdamW8BitShardAttrs& attrs) {
  std::vector<int64_t> dims = attrs.ranks;
  dims.push_back(2 * attrs.blocks());
  return Shape(dims);
}

// `like`: the parameter, or its gradient.
template <typename Op>
void check_moments(const View<Op>& node, const Shape& like) {
  const Shape held = with_rows(like, row_range(node.attrs.update, like).rows), scales{node.attrs.blocks()};
  require_value(node.untyped(), *node.in.m, held, "state m");
  require_value(node.untyped(), *node.in.m_scale, scales, "state m_scale");
  require_value(node.untyped(), *node.in.v, held, "state v");
  require_value(node.untyped(), *node.in.v_scale, scales, "state v_scale");
  graph::require_rank_block(node.untyped(), *node.in.rank);
}

Outputs<AdamW8BitShard> infer_shard(const View<AdamW8BitShard>& node) {
  const auto& in = node.in;
  check_moments(node, in.parameter->shape);
  require_value(node.untyped(), *in.gradient, in.parameter->shape, "the gradient");
  require(node,
          in.largest->shape.rank() == static_cast<int>(node.attrs.ranks.size()) + 1 &&
              in.largest->shape[-1] == 2 * node.attrs.blocks(),
          "the largest moments must be those of every block");
  return {.parameter = {DType::kF32, in.parameter->shape},
          .m = {DType::kU8, in.m->shape},
          .m_scale = {DType::kF32, in.m_scale->shape},
          .v = {DType::kU8, in.v->shape},
          .v_scale = {DType::kF32, in.v_scale->shape}};
}

// FLOPs for each element of the node's rows, passes over parameter and gradient, and over the codes.
template <typename Op>
Cost cost_of_blocks(const View<Op>& node, const Value& like, double flops, double passes,
                    double code_passes) {
  const auto elements = static_cast<double>(UpdateElements(node.attrs.update, like.shape).count);
  const auto scales = 8 * static_cast<double>(node.attrs.blocks());
  return {flops * elements, (4 * passes + 2 * code_passes) * elements + 2 * scales};
}

AdamW8BitShardAttrs localize_blocks(AdamW8BitShardAttrs attrs, const Value& like, const graph::Mesh& mesh) {
  attrs.update = localized(attrs.update, like, mesh);
  std::fill(attrs.ranks.begin(), attrs.ranks.end(), 1);
  return attrs;
}

Splits<AdamW8BitLargest> placements_largest(const View<AdamW8BitLargest>& node, Axis axis) {
  const auto& axes = node.attrs.axes;
  const auto at = std::find(axes.begin(), axes.end(), axis);
  if (at == axes.end()) return {};
  Splits<AdamW8BitLargest> splits;
  for (int dim = 0; dim < node.in.gradient->shape.rank(); ++dim) {
    const Placement own = Placement::sharded(dim);
    splits.push_back(
        {{.m = own, .m_scale = kR, .v = own, .v_scale = kR, .gradient = own, .scalars = kR, .rank = kR},
         {.largest = Placement::sharded(static_cast<int>(at - axes.begin()))}});
  }
  return splits;
}

Splits<AdamW8BitShard> placements_shard(const View<AdamW8BitShard>& node, Axis axis) {
  const auto& axes = node.attrs.axes;
  if (std::find(axes.begin(), axes.end(), axis) == axes.end()) return {};
  Splits<AdamW8BitShard> splits;
  for (int dim = 0; dim < node.in.parameter->shape.rank(); ++dim) {
    const Placement own = Placement::sharded(dim);
    splits.push_back({{.parameter = own,
                       .m = own,
                       .m_scale = kR,
                       .v = own,
                       .v_scale = kR,
                       .gradient = own,
                       .scalars = kR,
                       .rank = kR,
                       .largest = kR},
                      {.parameter = own, .m = own, .m_scale = kR, .v = own, .v_scale = kR}});
  }
  return splits;
}

// What ranks hold of indices [first, first + count) of a dimension.
TensorShare share_of_tensor(const Value& value, int dim, const graph::Mesh& mesh, int64_t first,
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

AdamW8BitShardAttrs attrs_of(const Graph& graph, const ShardedRows& tensor) {
  const Value& value = graph.value(tensor.parameter);
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

// The largest of all ranks, one axis after another, in one call for values of equal placement.
void gather_largest(Graph& graph, const std::vector<AdamW8BitShardAttrs>& attrs,
                    std::vector<ValueId>& largest) {
  std::map<std::vector<Axis>, std::vector<size_t>> alike;
  for (size_t i = 0; i < attrs.size(); ++i) alike[attrs[i].axes].push_back(i);
  for (const auto& [axes, tensors] : alike) {
    for (size_t dim = 0; dim < axes.size(); ++dim) {
      graph::InIds<graph::Reshard> in;
      for (const size_t i : tensors) in.x.push_back(largest[i]);
      const auto whole =
          graph::add<graph::Reshard>(
              graph, in, {.axis = axes[dim], .from = Placement::sharded(static_cast<int>(dim)), .to = kR})
              .moved;
      for (size_t i = 0; i < tensors.size(); ++i) largest[tensors[i]] = whole[i];
    }
  }
}

// The tensors of a layer: their largest go in one call.
void add_shared_blocks(Graph& graph, ValueId scalars, const std::vector<ShardedRows>& tensors) {
  const ValueId rank = graph::rank_block(graph);
  std::vector<AdamW8BitShardAttrs> attrs;
  std::vector<graph::OutIds<AdamW8BitShard>> moved;
  std::vector<ValueId> largest;
  for (const ShardedRows& one : tensors) {
    std::vector<ValueId> over{one.parameter};
    over.insert(over.end(), one.states.begin(), one.states.end());
    const auto& to = moved.emplace_back(graph::detail::gather<AdamW8BitShard::Out, graph::Ids>(
        over.size(), [&](size_t i) { return over[i]; }));
    attrs.push_back(attrs_of(graph, one));
    largest.push_back(add<AdamW8BitLargest>(graph,
                                            {.m = to.m,
                                             .m_scale = to.m_scale,
                                             .v = to.v,
                                             .v_scale = to.v_scale,
                                             .gradient = one.gradient,
                                             .scalars = scalars,
                                             .rank = rank},
                                            attrs.back())
                          .largest);
  }
  gather_largest(graph, attrs, largest);
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto& to = moved[i];
    add_into<AdamW8BitShard>(graph,
                             {.parameter = to.parameter,
                              .m = to.m,
                              .m_scale = to.m_scale,
                              .v = to.v,
                              .v_scale = to.v_scale,
                              .gradient = tensors[i].gradient,
                              .scalars = scalars,
                              .rank = rank,
                              .largest = largest[i]},
                             to, attrs[i]);
  }
}

}  // namespace

// By rows that end where blocks do, or by whole tensors.
const OpDef AdamW8BitUpdate::def = define<AdamW8BitUpdate>({
    .name = "adamw8bit",
    .family = "update",
    .infer = infer_update,
    .cost = [](const auto& node) { return update_cost(node, {.flops = 40}); },
    .placements = [](const auto& node, Axis axis) -> Splits<AdamW8BitUpdate> {
      const Value& parameter = *node.in.parameter;
      const Shape& shape = parameter.shape;
      const bool ends_with_blocks = shape.elements() / shape[0] *
                                        std::max<int64_t>(1, parameter.sharding.padding.alignment) %
                                        kQuantizationBlock ==
                                    0;
      if (!ends_with_blocks && !is_distributed_along(node.attrs, parameter, axis)) return {};
      return {update_split<AdamW8BitUpdate>(kS0)};
    },
    .in_place =
        {{"parameter", "parameter"}, {"m", "m"}, {"m_scale", "m_scale"}, {"v", "v"}, {"v_scale", "v_scale"}},
    .localize = localize_update,
});

const OpDef AdamW8BitLargest::def = define<AdamW8BitLargest>({
    .name = "adamw8bit_largest",
    .family = "update",
    .infer = [](const auto& node) -> Outputs<AdamW8BitLargest> {
      check_moments(node, node.in.gradient->shape);
      return {.largest = {DType::kF32, shape_of_largest(node.attrs)}};
    },
    .cost = [](const auto& node) { return cost_of_blocks(node, *node.in.gradient, 12, 1, 1); },
    .placements = placements_largest,
    .localize =
        [](const auto& node) { return localize_blocks(node.attrs, *node.in.gradient, node.graph.mesh()); },
});
const OpDef AdamW8BitShard::def = define<AdamW8BitShard>({
    .name = "adamw8bit_shard",
    .family = "update",
    .infer = infer_shard,
    .cost = [](const auto& node) { return cost_of_blocks(node, *node.in.parameter, 40, 3, 2); },
    .placements = placements_shard,
    .in_place =
        {{"parameter", "parameter"}, {"m", "m"}, {"m_scale", "m_scale"}, {"v", "v"}, {"v_scale", "v_scale"}},
    .localize =
        [](const auto& node) { return localize_blocks(node.attrs, *node.in.parameter, node.graph.mesh()); },
});

const Definition AdamW8Bit::definition{
    .name = "adamw8bit",
    .help = "Moments of one byte, a scale for every 256 (Dettmers et al. 2022).",
    .keys = {{"min_elements",
              &AdamW8Bit::min_elements,
              "Smaller tensors have moments in fp32.",
              {.least = 1, .most = kMostConstant, .counts = true, .fixed = true}}},
    .share =
        [](Optimizer& own, const Optimizer& of_run) {
          own = AdamW8Bit{own.as<AdamW8Bit>().min_elements, of_run.as<AdamW>()};
        },
    .low_weights = true,
    // Too small to be worth the scales.
    .instead = [](const Optimizer& own, const Shape& rows) -> std::optional<Optimizer> {
      const auto& constants = own.as<AdamW8Bit>();
      if (rows.elements() >= constants.min_elements) return {};
      return constants.adamw;
    },
    .unit = Definition::Unit::kTensor,
    .op = op_of<AdamW8BitUpdate>,
    .states = states_of<AdamW8BitUpdate>,
    .alignment =
        [](const Shape& rows) {
          const int64_t columns = rows.elements() / rows[0];
          return kQuantizationBlock / std::gcd(columns, kQuantizationBlock);
        },
    .add_sharded =
        [](Graph& graph, ValueId scalars, const std::vector<ShardedRows>& all) {
          for_each_layer(all, [&](const std::vector<ShardedRows>& tensors) {
            add_shared_blocks(graph, scalars, tensors);
          });
        },
    // Cut by nothing but the axis whose shards end where blocks do.
    .is_own =
        [](const Graph& graph, const Value& parameter) {
          return std::none_of(graph::kAllAxes.begin(), graph::kAllAxes.end(), [&](Axis axis) {
            return parameter.placements[axis].kind == Placement::Kind::kSharded &&
                   graph.mesh().size(axis) > 1 && axis != parameter.sharding.padding.axis;
          });
        },
};

}  // namespace strata::optim
