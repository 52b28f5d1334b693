#include "graph/reshard.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "graph/typed_op.h"

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
    if (cut.from.alignment > 0) text("padded_from", held_size(cut.from));
    if (cut.to.alignment > 0) text("padded_to", held_size(cut.to));
  }
}

namespace {

const Placement kWhole = Placement::replicated();
const Placement kRows = Placement::sharded(0);

bool is_sharded(Placement placement) {
  return placement.kind == Placement::Kind::kSharded;
}

// The old cut is undone, and the result is a shard of the new cut. `segments`: the parts as the value has
// them.
void resize(const NodeView& view, Spec& spec, const Value& x, Placement placement,
            const std::vector<int64_t>& parts, const std::vector<int64_t>& segments) {
  if (!is_sharded(placement)) return;
  if (placement.dim >= spec.shape.rank()) shape_error(view, "there is no such dimension to split");
  if (parts.empty()) return;
  spec.shape.set(placement.dim, std::accumulate(parts.begin(), parts.end(), int64_t{0}));
  if (placement.dim == x.segment_dim() && !spec.segments.empty()) spec.segments = segments;
}

// Operand `i`, x.
template <typename Op>
Spec moved(const View<Op>& node, size_t i, const Value& x) {
  const ReshardAttrs& attrs = node.attrs;
  Spec spec = Spec::like(x);
  const ReshardCuts cuts = i < attrs.cuts.size() ? attrs.cuts[i] : ReshardCuts{};
  const std::vector<int64_t> shares = shares_of(cuts.to);
  resize(node.untyped(), spec, x, attrs.from, cuts.from.parts,
         cuts.from.apart.empty() ? cuts.from.parts : cuts.from.apart);
  resize(node.untyped(), spec, x, attrs.to, shares, shares);
  return spec;
}

// From and to, for all values that move. Other axes are unaffected, and padded values keep their cut. On one
// rank the op differs from the op on the whole: then nothing splits it.
template <typename Op>
std::vector<Split<Op>> splits_of_moved(const View<Op>& node, Axis axis, const Value& x) {
  const ReshardAttrs& attrs = node.attrs;
  if (attrs.ranks != 1) return {};
  std::vector<Split<Op>> splits;
  const auto all = [&](Placement from, Placement to) {
    splits.emplace_back();
    splits.back().in.x = from;
    splits.back().out.moved = to;
  };
  if (axis == attrs.axis) {
    all(attrs.from, attrs.to);
    return splits;
  }
  all(Placement::partial(), Placement::partial());
  for (int dim = 0; dim < x.shape.rank(); ++dim) all(Placement::sharded(dim), Placement::sharded(dim));
  return splits;
}

void add_moved_gradient(GradientBuilder& builder, const ReshardAttrs& attrs, ValueId x, ValueId moved) {
  STRATA_CHECK(attrs.shift == 0, "a shift of shards has no gradient rule: its caller adds the gradient");
  const Placement wanted = attrs.from.kind == Placement::Kind::kPartial ? kWhole : attrs.from;
  builder.add_gradient(
      x, reshard(builder.graph(), builder.gradient_of(moved), attrs.axis, wanted, attrs.sequence));
}

ReshardAttrs localized(const Mesh& mesh, ReshardAttrs attrs) {
  attrs.ranks = attrs.among.empty() ? mesh.size(attrs.axis) : std::ssize(attrs.among);
  return attrs;
}
ReshardCuts cuts_of_moved(const ReshardAttrs& attrs, const Mesh& mesh, const Value& x, const Value& moved) {
  ReshardCuts cuts;
  if (is_sharded(attrs.from)) cuts.from = cut_along(x, attrs.from.dim, mesh, attrs.axis);
  if (is_sharded(attrs.to)) cuts.to = cut_along(moved, attrs.to.dim, mesh, attrs.axis);
  if (attrs.from == kRows) cuts.from.sequence = attrs.sequence;
  if (attrs.to == kRows) cuts.to.sequence = attrs.sequence;
  return cuts;
}

}  // namespace

const OpDef Reshard::def = define<Reshard>({
    .name = "reshard",
    .family = "collective",
    .infer = [](const auto& node) -> Reshard::Out<Specs> {
      Reshard::Out<Specs> out;
      for (size_t i = 0; i < node.in.x.size(); ++i) out.moved.push_back(moved(node, i, *node.in.x[i]));
      return out;
    },
    .cost = [](const auto& node) -> Cost {
      return {0, streamed_bytes(node.untyped())};
    },
    .placements = [](const auto& node, Axis axis) { return splits_of_moved(node, axis, *node.in.x.front()); },
    .gradient =
        [](GradientBuilder& builder, const auto& node) {
          for (size_t i = 0; i < node.in.x.size(); ++i)
            add_moved_gradient(builder, node.attrs, node.in.x[i], node.out.moved[i]);
        },
    .localize =
        [](const auto& node) {
          const Mesh& mesh = node.graph.mesh();
          ReshardAttrs attrs = localized(mesh, node.attrs);
          for (size_t i = 0; i < node.in.x.size(); ++i)
            attrs.cuts.push_back(cuts_of_moved(attrs, mesh, *node.in.x[i], *node.out.moved[i]));
          return attrs;
        },
    .queue = Queue::kCommunication,
});

const OpDef TakeShard::def = define<TakeShard>({
    .name = "take_shard",
    .family = "elementwise",
    .infer = [](const auto& node) -> TakeShard::Out<Specs> {
      require_rank_block(node.untyped(), *node.in.rank);
      return {.moved = moved(node, 0, *node.in.x)};
    },
    .cost = [](const auto& node) -> Cost {
      return {0, 2 * static_cast<double>(node.out.moved->bytes())};
    },
    .placements = [](const auto& node, Axis axis) { return splits_of_moved(node, axis, *node.in.x); },
    .gradient = [](GradientBuilder& builder,
                   const auto& node) { add_moved_gradient(builder, node.attrs, node.in.x, node.out.moved); },
    .localize =
        [](const auto& node) {
          const Mesh& mesh = node.graph.mesh();
          ReshardAttrs attrs = localized(mesh, node.attrs);
          attrs.cuts = {cuts_of_moved(attrs, mesh, *node.in.x, *node.out.moved)};
          return attrs;
        },
});

namespace {

// One value moved.
ValueId add_reshard(Graph& graph, ValueId x, ReshardAttrs attrs) {
  return add<Reshard>(graph, {.x = {x}}, std::move(attrs)).moved.front();
}

}  // namespace

ValueId reshard(Graph& graph, ValueId x, Axis axis, Placement to, int64_t sequence) {
  if (graph.mesh().size(axis) == 1) return x;
  const Placement from = graph.placement(x, axis);
  if (from == to) return x;
  STRATA_CHECK(to.kind != Placement::Kind::kPartial, "{} would become terms of a sum on axis {}",
               graph.value(x).name, name_of(axis));
  const ReshardAttrs attrs{.axis = axis, .from = from, .to = to, .sequence = sequence};
  if (from == kWhole) return add<TakeShard>(graph, {.x = x, .rank = rank_block(graph)}, attrs).moved;
  const ValueId y = add_reshard(graph, x, attrs);
  graph.value(y).sharding.distributed_axes = graph.value(x).sharding.distributed_axes;
  // A value that is gathered and cut in another way has lost the padding of its old cut.
  const bool is_recut = is_sharded(from) && is_sharded(to);
  const Padding& padding = graph.value(x).sharding.padding;
  if (!is_recut || (padding.axis != axis && padding.uneven != axis))
    graph.value(y).sharding.padding = padding;
  return y;
}

std::vector<ValueId> shift_shards(Graph& graph, std::vector<ValueId> values, Axis axis, int64_t places) {
  if (graph.mesh().size(axis) == 1) return values;
  const Placement held = graph.placement(values.front(), axis);
  STRATA_CHECK(is_sharded(held), "{} is not sharded on axis {}", graph.value(values.front()).name,
               name_of(axis));
  return add<Reshard>(graph, {.x = {values.begin(), values.end()}},
                      {.axis = axis, .from = held, .to = held, .shift = places})
      .moved;
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
      InIds<Reshard> in;
      for (const size_t i : group) in.x.push_back(values[i]);
      const auto sums =
          add<Reshard>(graph, in, {.axis = axis, .from = Placement::partial(), .to = kWhole}).moved;
      for (size_t i = 0; i < group.size(); ++i) {
        graph.value(sums[i]).sharding.distributed_axes = graph.value(in.x[i]).sharding.distributed_axes;
        values[group[i]] = sums[i];
      }
    }
  }
  return values;
}

ValueId sum_among(Graph& graph, ValueId x, Axis axis, std::vector<int32_t> among) {
  STRATA_CHECK(graph.mesh().size(axis) > 1 && graph.placement(x, axis) == Placement::partial(),
               "{} is not a partial sum on axis {}", graph.value(x).name, name_of(axis));
  ReshardAttrs attrs{.axis = axis, .from = Placement::partial(), .to = kWhole};
  attrs.among = std::move(among);
  const ValueId y = add_reshard(graph, x, std::move(attrs));
  graph.value(y).sharding.padding = graph.value(x).sharding.padding;
  graph.value(y).sharding.distributed_axes = graph.value(x).sharding.distributed_axes;
  return y;
}

ValueId reduce_like(Graph& graph, ValueId x, ValueId like, const std::vector<int32_t>& holders) {
  // Shards first: the reductions after them are smaller.
  for (const Axis axis : kAllAxes) {
    const Placement wanted = graph.placement(like, axis);
    if (graph.placement(x, axis) != Placement::partial() || !is_sharded(wanted)) continue;
    x = reshard(graph, x, axis, wanted);
    graph.value(x).sharding.padding = graph.value(like).sharding.padding;
  }
  if (!holders.empty()) x = sum_among(graph, x, Axis::kPipeline, holders);
  return sum_over_ranks(graph, x);
}

ValueId enter_shards(Graph& graph, ValueId x, Axis axis) {
  if (graph.mesh().size(axis) == 1) return x;
  STRATA_CHECK(graph.placement(x, axis) == kWhole, "{} is not whole on axis {}", graph.value(x).name,
               name_of(axis));
  return add_reshard(graph, x, {.axis = axis, .from = kWhole, .to = kWhole});
}

void set_partial(Graph& graph, ValueId x, Axis axis) {
  if (graph.mesh().size(axis) > 1) graph.value(x).placements.set(axis, Placement::partial());
}

void require_rank_block(const NodeView& view, const Value& rank) {
  if (rank.dtype != DType::kI32 || rank.shape != Shape{std::ssize(kAllAxes)})
    shape_error(view, "the per-rank constants must be i32[axes]");
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
    if (node.op != &Reshard::def) return false;
    const auto& attrs = node.attrs.as<ReshardAttrs>();
    if (attrs.from != attrs.to || attrs.shift != 0) return false;
    same[static_cast<size_t>(node.outputs.front())] = node.inputs.front();
    return true;
  });
}

}  // namespace strata::graph
