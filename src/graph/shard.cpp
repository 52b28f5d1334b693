#include "graph/shard.h"

#include "base/error.h"

namespace strata::graph {
namespace {

// A rank's share of every span.
std::vector<Span> cut(const std::vector<Span>& spans, int64_t ranks, int64_t index, const Value& value,
                      int dim, const std::string& axis) {
  std::vector<Span> out;
  for (const Span& span : spans) {
    if (span.size() % ranks != 0) {
      throw ConfigError(
          "[parallel.{}] dimension {} of {} has a part of {}, which {} ranks cannot share equally; take a "
          "degree that divides it",
          axis, dim, value.name, span.size(), ranks);
    }
    const int64_t share = span.size() / ranks;
    out.push_back({span.begin + index * share, span.begin + (index + 1) * share});
  }
  return out;
}

}  // namespace

std::vector<std::vector<Span>> spans_of(const Value& value, const Shape& shape,
                                        const std::vector<int64_t>& segments, const Mesh& mesh,
                                        const Coordinates& coordinates) {
  std::vector<std::vector<Span>> spans;
  for (int dim = 0; dim < shape.rank(); ++dim) {
    spans.push_back({{0, shape[dim]}});
    if (dim != value.segment_dim() || segments.empty()) continue;
    spans.back().clear();
    int64_t begin = 0;
    for (const int64_t segment : segments) {
      spans.back().push_back({begin, begin + segment});
      begin += segment;
    }
  }
  for (size_t axis = 0; axis < value.placements.size(); ++axis) {
    const Placement placement = value.placements[axis];
    if (placement.kind != Placement::Kind::kSharded || mesh.axes[axis].size == 1) continue;
    auto& along = spans[static_cast<size_t>(placement.dim)];
    along = cut(along, mesh.axes[axis].size, coordinates[axis], value, placement.dim, mesh.axes[axis].name);
  }
  return spans;
}

std::vector<std::vector<Span>> spans_of(const Value& value, const Mesh& mesh,
                                        const Coordinates& coordinates) {
  const bool is_part = value.global_shape.rank() > 0;
  return spans_of(value, is_part ? value.global_shape : value.shape,
                  is_part ? value.global_segments : value.segments, mesh, coordinates);
}

}  // namespace strata::graph
