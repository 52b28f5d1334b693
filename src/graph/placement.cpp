#include "graph/placement.h"

#include <functional>
#include <numeric>

namespace strata::graph {

std::string str(Placement placement) {
  switch (placement.kind) {
    case Placement::Kind::kReplicated:
      return "R";
    case Placement::Kind::kSharded:
      return "S" + std::to_string(placement.dim);
    case Placement::Kind::kPartial:
      return "P";
  }
  return "?";
}

std::string_view name_of(Axis axis) {
  static constexpr std::string_view kNames[] = {"pipeline", "replicate", "shard", "context", "tensor"};
  return kNames[static_cast<size_t>(axis)];
}

int64_t Mesh::batch_ranks() const {
  return size(Axis::kReplicate) * size(Axis::kShard);
}

int64_t Mesh::ranks() const {
  return std::accumulate(sizes_.values.begin(), sizes_.values.end(), int64_t{1}, std::multiplies<>());
}

Coordinates Mesh::coordinates(int64_t rank) const {
  Coordinates out;
  for (size_t i = kAxes; i-- > 0;) {
    out.values[i] = static_cast<int32_t>(rank % sizes_.values[i]);
    rank /= sizes_.values[i];
  }
  return out;
}

int64_t Mesh::rank_at(const Coordinates& coordinates) const {
  int64_t rank = 0;
  for (size_t i = 0; i < kAxes; ++i) rank = rank * sizes_.values[i] + coordinates.values[i];
  return rank;
}

std::span<const Axis> Mesh::shown_axes() const {
  return std::span(kAllAxes).subspan(size(Axis::kPipeline) == 1 ? 1 : 0);
}

}  // namespace strata::graph
