#include "graph/shard.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"

namespace strata::graph {
namespace {

int64_t ceil_divide(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

// The axes that cut a dimension, in the order in which they do.
std::vector<Axis> axes_that_cut(const Value& value, int dim, const Mesh& mesh) {
  std::vector<Axis> axes;
  const auto add = [&](Axis axis) {
    if (value.placements[axis] == Placement::sharded(dim) && mesh.size(axis) > 1) axes.push_back(axis);
  };
  for (const Axis axis : kAllAxes) {
    if (axis != value.sharding.padding.axis) add(axis);
  }
  if (value.sharding.padding.axis) add(*value.sharding.padding.axis);
  return axes;
}

const Shape& whole_shape(const Value& value) {
  return value.sharding.global_shape.rank() > 0 ? value.sharding.global_shape : value.shape;
}

std::vector<int64_t> whole_parts(const Value& value, int dim) {
  const auto& segments =
      value.sharding.global_shape.rank() > 0 ? value.sharding.global_segments : value.segments;
  return dim == value.segment_dim() && !segments.empty() ? segments
                                                         : std::vector<int64_t>{whole_shape(value)[dim]};
}

// All ranks must run one program.
void check_distributed(const Value& value, int dim, const Cut& cut, Axis axis) {
  const auto parts = std::ssize(cut.parts), each = parts / cut.ranks;
  if (parts % cut.ranks != 0) {
    throw ConfigError("[parallel.expert] dimension {} of {} has {} parts, which {} ranks of {} cannot share",
                      dim, value.name, parts, cut.ranks, name_of(axis));
  }
  for (auto i = each; i < parts; ++i) {
    STRATA_CHECK(cut.parts[static_cast<size_t>(i)] == cut.parts[static_cast<size_t>(i - each)],
                 "ranks get different parts of {}", value.name);
  }
}

// Sums of consecutive groups of neighbours.
std::vector<int64_t> joined(const std::vector<int64_t>& parts, const Value& value) {
  std::vector<int64_t> sums;
  auto at = parts.begin();
  for (const int64_t count : value.sharding.padding.joined) {
    STRATA_CHECK(count <= parts.end() - at, "{} has {} parts, fewer than are joined", value.name,
                 parts.size());
    sums.push_back(std::accumulate(at, at + count, int64_t{0}));
    at += count;
  }
  STRATA_CHECK(at == parts.end(), "{} has {} parts, more than are joined", value.name, parts.size());
  return sums;
}

Cut cut_on(std::vector<int64_t> parts, const Value& value, int dim, const Mesh& mesh, Axis axis) {
  const Padding& padding = value.sharding.padding;
  Cut cut{std::move(parts), mesh.size(axis),
          axis == padding.axis     ? padding.alignment
          : axis == padding.uneven ? 1
                                   : 0};
  if (std::find(value.sharding.distributed_axes.begin(), value.sharding.distributed_axes.end(), axis) !=
      value.sharding.distributed_axes.end()) {
    check_distributed(value, dim, cut, axis);
    cut.deals = true;
    return cut;
  }
  if (axis == padding.axis && !padding.joined.empty()) {
    cut.apart = std::move(cut.parts);
    cut.parts = joined(cut.apart, value);
  }
  if (cut.alignment > 0) return cut;
  for (const int64_t part : cut.parts) {
    if (part % cut.ranks == 0) continue;
    throw ConfigError(
        "[parallel.{}] dimension {} of {} has a part of {}, which {} ranks cannot share equally; take a "
        "degree that divides it",
        name_of(axis), dim, value.name, part, cut.ranks);
  }
  return cut;
}

// Held spans of a cut of something of which `held` is held already.
std::vector<HeldSpan> compose(const std::vector<HeldSpan>& held, const std::vector<HeldSpan>& further) {
  std::vector<HeldSpan> out;
  for (const HeldSpan& inner : further) {
    for (const HeldSpan& outer : held) {
      const int64_t begin = std::max(inner.whole.begin, outer.at);
      const int64_t end = std::min(inner.whole.end, outer.at + outer.whole.size());
      if (begin >= end) continue;
      out.push_back({{outer.whole.begin + begin - outer.at, outer.whole.begin + end - outer.at},
                     inner.at + begin - inner.whole.begin});
    }
  }
  return out;
}

}  // namespace

int64_t share_of(const Cut& cut, size_t part) {
  const int64_t size = cut.parts[part];
  return cut.alignment == 0 ? size / cut.ranks
                            : ceil_divide(ceil_divide(size, cut.ranks), cut.alignment) * cut.alignment;
}

std::vector<int64_t> shares_of(const Cut& cut) {
  std::vector<int64_t> shares;
  if (cut.deals) return {cut.parts.begin(), cut.parts.begin() + std::ssize(cut.parts) / cut.ranks};
  for (size_t i = 0; i < cut.parts.size(); ++i) shares.push_back(share_of(cut, i));
  return shares;
}

int64_t held_size(const Cut& cut) {
  const auto shares = shares_of(cut);
  return std::accumulate(shares.begin(), shares.end(), int64_t{0});
}

namespace {

std::vector<HeldSpan> held_of_sequences(const Cut& cut, int64_t index) {
  const int64_t chunk = cut.sequence / (2 * cut.ranks), entries = cut.parts.front();
  STRATA_CHECK(cut.parts.size() == 1 && cut.sequence % (2 * cut.ranks) == 0 && entries % cut.sequence == 0,
               "{} entries in sequences of {} on {} ranks", entries, cut.sequence, cut.ranks);
  std::vector<HeldSpan> held;
  int64_t at = 0;
  for (int64_t begin = 0; begin < entries; begin += cut.sequence) {
    for (const int64_t first : {begin + index * chunk, begin + cut.sequence - (index + 1) * chunk}) {
      held.push_back({{first, first + chunk}, at});
      at += chunk;
    }
  }
  return held;
}

}  // namespace

std::vector<HeldSpan> held_of(const Cut& cut, int64_t index) {
  if (cut.sequence > 0) return held_of_sequences(cut, index);
  if (cut.deals) {
    const int64_t size = held_size(cut);
    return {{{index * size, (index + 1) * size}, 0}};
  }
  std::vector<HeldSpan> held;
  int64_t begin = 0, at = 0;
  for (size_t i = 0; i < cut.parts.size(); ++i) {
    const int64_t share = share_of(cut, i), size = cut.parts[i];
    const Span mine{begin + std::min(size, index * share), begin + std::min(size, (index + 1) * share)};
    if (mine.size() > 0) held.push_back({mine, at});
    begin += size;
    at += share;
  }
  return held;
}

Cut cut_along(const Value& value, int dim, const Mesh& mesh, Axis axis) {
  std::vector<int64_t> parts = whole_parts(value, dim);
  for (const Axis other : axes_that_cut(value, dim, mesh)) {
    if (other != axis) parts = shares_of(cut_on(std::move(parts), value, dim, mesh, other));
  }
  return cut_on(std::move(parts), value, dim, mesh, axis);
}

std::vector<AxisCut> cuts_of(const Value& value, int dim, const Mesh& mesh) {
  std::vector<AxisCut> cuts;
  std::vector<int64_t> parts = whole_parts(value, dim);
  for (const Axis axis : axes_that_cut(value, dim, mesh)) {
    cuts.push_back({axis, cut_on(std::move(parts), value, dim, mesh, axis)});
    parts = shares_of(cuts.back().cut);
  }
  return cuts;
}

bool is_sharded(const Graph& graph, const Value& value) {
  return std::any_of(kAllAxes.begin(), kAllAxes.end(), [&](Axis axis) {
    return value.placements[axis].kind == Placement::Kind::kSharded && graph.mesh().size(axis) > 1;
  });
}

std::vector<int64_t> parts_on_rank(const Value& value, int dim, const Mesh& mesh) {
  const auto cuts = cuts_of(value, dim, mesh);
  return cuts.empty() ? whole_parts(value, dim) : shares_of(cuts.back().cut);
}

std::vector<int64_t> parts_shared(const Value& value, int dim, const Mesh& mesh) {
  std::vector<int64_t> parts = whole_parts(value, dim);
  const std::vector<Axis> axes = axes_that_cut(value, dim, mesh);
  const bool joins = !value.sharding.padding.joined.empty() &&
                     std::find(axes.begin(), axes.end(), value.sharding.padding.axis) != axes.end();
  return joins ? joined(parts, value) : parts;
}

std::vector<std::vector<HeldSpan>> held_spans(const Value& value, const Mesh& mesh,
                                              const Coordinates& coordinates) {
  const Shape& shape = whole_shape(value);
  std::vector<std::vector<HeldSpan>> spans;
  for (int dim = 0; dim < shape.rank(); ++dim) {
    std::vector<HeldSpan> held{{{0, shape[dim]}, 0}};
    for (const AxisCut& of : cuts_of(value, dim, mesh))
      held = compose(held, held_of(of.cut, coordinates[of.axis]));
    spans.push_back(std::move(held));
  }
  return spans;
}

}  // namespace strata::graph
