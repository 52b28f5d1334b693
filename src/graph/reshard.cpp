#include "graph/reshard.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "graph/differentiate.h"

namespace strata::graph {

void ReshardAttrs::describe(AttributeText& text) const {
  text("axis", name_of(axis));
  text("from", str(from));
  text("to", str(to));
  if (ranks != 1) text("ranks", ranks);
  for (const int32_t one : among) text("among", int64_t{one});
  if (sequence != 0) text("sequence", sequence);
  if (shift != 0) text("shift", shift);
  for (const ReshardCuts& cut : cuts) {
    if (cut.from.grain > 0) text("padded_from", held_size(cut.from));
    if (cut.to.grain > 0) text("padded_to", held_size(cut.to));
  }
}

namespace {

const Placement kWhole = Placement::replicated();
const Placement kRows = Placement::sharded(0);

bool is_sharded(Placement placement) {
  return placement.kind == Placement::Kind::kSharded;
}

// What was cut is put together again, and what comes is a share of its own cut. `segments`: the parts as the
// value has them.
void resize(const NodeView& view, ValueSpec& spec, const Value& x, Placement placement,
            const std::vector<int64_t>& parts, const std::vector<int64_t>& segments) {
  if (!is_sharded(placement)) return;
  if (placement.dim >= spec.shape.rank()) shape_error(view, "there is no such dimension to split");
  if (parts.empty()) return;
  spec.shape.set(placement.dim, std::accumulate(parts.begin(), parts.end(), int64_t{0}));
  if (placement.dim == x.segment_dim() && !spec.segments.empty()) spec.segments = segments;
}

ValueSpec moved(const NodeView& view, size_t i) {
  const auto& attrs = view.attrs<ReshardAttrs>();
  const Value& x = view.in(static_cast<int>(i));
  ValueSpec spec{"moved", x.dtype, x.shape, x.segments, false, x.segments_along};
  const ReshardCuts cuts = i < attrs.cuts.size() ? attrs.cuts[i] : ReshardCuts{};
  const std::vector<int64_t> shares = shares_of(cuts.to);
  resize(view, spec, x, attrs.from, cuts.from.parts,
         cuts.from.apart.empty() ? cuts.from.parts : cuts.from.apart);
  resize(view, spec, x, attrs.to, shares, shares);
  return spec;
}

std::vector<ValueSpec> infer(const NodeView& view) {
  std::vector<ValueSpec> specs;
  for (size_t i = 0; i < view.node.inputs.size(); ++i) specs.push_back(moved(view, i));
  return specs;
}

std::vector<ValueSpec> infer_take(const NodeView& view) {
  require_rank_block(view, TakeShard::kRank);
  return {moved(view, TakeShard::kX)};
}

Cost cost(const NodeView& view) {
  return {0, streamed_bytes(view)};
}

Cost cost_take(const NodeView& view) {
  return {0, 2 * static_cast<double>(view.out(TakeShard::kY).bytes())};
}

// Other axes pass, and what is padded keeps its cut. On a rank the op is no longer what it is to the whole:
// then nothing splits it.
std::vector<PlacementOption> placements_of(const NodeView& view, Axis axis, size_t operands) {
  const auto& attrs = view.attrs<ReshardAttrs>();
  if (attrs.ranks != 1) return {};
  const auto all = [&](Placement from, Placement to) {
    return PlacementOption{std::vector(operands, from), std::vector(operands, to)};
  };
  if (axis == attrs.axis) return {all(attrs.from, attrs.to)};
  std::vector<PlacementOption> options{all(Placement::partial(), Placement::partial())};
  for (int dim = 0; dim < view.in(Reshard::kX).shape.rank(); ++dim)
    options.push_back(all(Placement::sharded(dim), Placement::sharded(dim)));
  return options;
}

std::vector<PlacementOption> placements(const NodeView& view, Axis axis) {
  return placements_of(view, axis, view.node.inputs.size());
}

std::vector<PlacementOption> placements_take(const NodeView& view, Axis axis) {
  return placements_of(view, axis, 1);
}

void gradient(GradientBuilder& builder, const Node& node) {
  const auto& attrs = node.attrs.as<ReshardAttrs>();
  STRATA_CHECK(attrs.shift == 0, "who lets shards go round says what their gradient is");
  Graph& graph = builder.graph();
  const Placement wanted = attrs.from.kind == Placement::Kind::kPartial ? kWhole : attrs.from;
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    builder.add_gradient(node.inputs[i], reshard(graph, builder.gradient_of(node.outputs[i]), attrs.axis,
                                                 wanted, attrs.sequence));
  }
}

Attributes localize_ranks(const NodeView& view) {
  auto attrs = view.attrs<ReshardAttrs>();
  const Mesh& mesh = view.graph.mesh();
  attrs.ranks = attrs.among.empty() ? mesh.size(attrs.axis) : std::ssize(attrs.among);
  for (size_t i = 0; i < view.node.outputs.size(); ++i) {
    ReshardCuts& cuts = attrs.cuts.emplace_back();
    const auto operand = static_cast<int>(i);
    if (is_sharded(attrs.from)) cuts.from = cut_along(view.in(operand), attrs.from.dim, mesh, attrs.axis);
    if (is_sharded(attrs.to)) cuts.to = cut_along(view.out(operand), attrs.to.dim, mesh, attrs.axis);
    if (attrs.from == kRows) cuts.from.sequence = attrs.sequence;
    if (attrs.to == kRows) cuts.to.sequence = attrs.sequence;
  }
  return attrs;
}

}  // namespace

const OpDef kReshard{.name = "reshard",
                     .family = "collective",
                     .infer = infer,
                     .cost = cost,
                     .placements = placements,
                     .gradient = gradient,
                     .localize = localize_ranks,
                     .queue = Queue::kCommunication};
const OpDef kTakeShard{.name = "take_shard",
                       .family = "elementwise",
                       .infer = infer_take,
                       .cost = cost_take,
                       .placements = placements_take,
                       .gradient = gradient,
                       .localize = localize_ranks};

ValueId reshard(Graph& graph, ValueId x, Axis axis, Placement to, int64_t sequence) {
  if (graph.mesh().size(axis) == 1) return x;
  const Placement from = graph.placement(x, axis);
  if (from == to) return x;
  STRATA_CHECK(to.kind != Placement::Kind::kPartial, "{} would become terms of a sum on axis {}",
               graph.value(x).name, name_of(axis));
  const ReshardAttrs attrs{.axis = axis, .from = from, .to = to, .sequence = sequence};
  if (from == kWhole) return graph.add_node(kTakeShard, {x, rank_block(graph)}, attrs)[0];
  const ValueId y = graph.add_node(kReshard, {x}, attrs)[0];
  graph.value(y).dealt_axes = graph.value(x).dealt_axes;
  // What is put together and cut another way has lost the padding of its old cut.
  const bool cut_anew = is_sharded(from) && is_sharded(to);
  const Padding& padding = graph.value(x).padding;
  if (!cut_anew || (padding.axis != axis && padding.uneven != axis)) graph.value(y).padding = padding;
  return y;
}

std::vector<ValueId> shift_shards(Graph& graph, std::vector<ValueId> values, Axis axis, int64_t places) {
  if (graph.mesh().size(axis) == 1) return values;
  const Placement held = graph.placement(values.front(), axis);
  STRATA_CHECK(is_sharded(held), "{} does not lie in shards on axis {}", graph.value(values.front()).name,
               name_of(axis));
  return graph.add_node(kReshard, std::move(values),
                        ReshardAttrs{.axis = axis, .from = held, .to = held, .shift = places});
}

ValueId sum_over_ranks(Graph& graph, ValueId x) {
  for (const Axis axis : kAllAxes) {
    if (graph.placement(x, axis) == Placement::partial()) x = reshard(graph, x, axis, kWhole);
  }
  return x;
}

std::vector<ValueId> sum_over_ranks(Graph& graph, std::vector<ValueId> values) {
  for (const Axis axis : kAllAxes) {
    std::vector<std::vector<size_t>> groups;
    for (size_t i = 0; i < values.size(); ++i) {
      if (graph.mesh().size(axis) == 1 || graph.placement(values[i], axis) != Placement::partial()) continue;
      const auto alike = std::find_if(groups.begin(), groups.end(), [&](const auto& group) {
        return graph.value(values[group[0]]).placements == graph.value(values[i]).placements;
      });
      if (alike == groups.end()) {
        groups.push_back({i});
      } else {
        alike->push_back(i);
      }
    }
    for (const auto& group : groups) {
      std::vector<ValueId> inputs;
      for (const size_t i : group) inputs.push_back(values[i]);
      const auto sums = graph.add_node(
          kReshard, inputs, ReshardAttrs{.axis = axis, .from = Placement::partial(), .to = kWhole});
      for (size_t i = 0; i < group.size(); ++i) {
        graph.value(sums[i]).dealt_axes = graph.value(inputs[i]).dealt_axes;
        values[group[i]] = sums[i];
      }
    }
  }
  return values;
}

ValueId sum_among(Graph& graph, ValueId x, Axis axis, std::vector<int32_t> among) {
  STRATA_CHECK(graph.mesh().size(axis) > 1 && graph.placement(x, axis) == Placement::partial(),
               "{} is no partial sum on axis {}", graph.value(x).name, name_of(axis));
  ReshardAttrs attrs{.axis = axis, .from = Placement::partial(), .to = kWhole};
  attrs.among = std::move(among);
  const ValueId y = graph.add_node(kReshard, {x}, std::move(attrs))[0];
  graph.value(y).padding = graph.value(x).padding;
  graph.value(y).dealt_axes = graph.value(x).dealt_axes;
  return y;
}

ValueId reduce_like(Graph& graph, ValueId x, ValueId like, const std::vector<int32_t>& holders) {
  // Shards first: what is reduced behind them is smaller.
  for (const Axis axis : kAllAxes) {
    const Placement wanted = graph.placement(like, axis);
    if (graph.placement(x, axis) != Placement::partial() || !is_sharded(wanted)) continue;
    x = reshard(graph, x, axis, wanted);
    graph.value(x).padding = graph.value(like).padding;
  }
  if (!holders.empty()) x = sum_among(graph, x, Axis::kPipeline, holders);
  return sum_over_ranks(graph, x);
}

ValueId enter_shards(Graph& graph, ValueId x, Axis axis) {
  if (graph.mesh().size(axis) == 1) return x;
  STRATA_CHECK(graph.placement(x, axis) == kWhole, "{} is not whole on axis {}", graph.value(x).name,
               name_of(axis));
  return graph.add_node(kReshard, {x}, ReshardAttrs{.axis = axis, .from = kWhole, .to = kWhole})[0];
}

void set_partial(Graph& graph, ValueId x, Axis axis) {
  if (graph.mesh().size(axis) > 1) graph.value(x).placements.set(axis, Placement::partial());
}

void require_rank_block(const NodeView& view, int input) {
  const Value& rank = view.in(input);
  if (rank.dtype != DType::kI32 || rank.shape != Shape{std::ssize(kAllAxes)})
    shape_error(view, "the rank block must be i32[axes]");
}

ValueId rank_block(Graph& graph) {
  const ValueId found = graph.find_value("rank");
  if (found != kNone) return found;
  return graph.add_value({.name = "rank",
                          .dtype = DType::kI32,
                          .shape = {std::ssize(kAllAxes)},
                          .role = Role::kRank,
                          .encoding = {},
                          .placements = {},
                          .segments = {}});
}

void drop_identities_pass(Graph& graph) {
  std::vector<ValueId> same(static_cast<size_t>(graph.value_count()));
  for (ValueId id = 0; id < graph.value_count(); ++id) same[static_cast<size_t>(id)] = id;
  std::erase_if(graph.nodes(), [&](Node& node) {
    for (ValueId& input : node.inputs) {
      if (input != kNone) input = same[static_cast<size_t>(input)];
    }
    if (node.op != &kReshard) return false;
    const auto& attrs = node.attrs.as<ReshardAttrs>();
    if (attrs.from != attrs.to || attrs.shift != 0) return false;
    same[static_cast<size_t>(node.outputs[Reshard::kY])] = node.inputs[Reshard::kX];
    return true;
  });
}

}  // namespace strata::graph
