#include "graph/placement.h"

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

Mesh Mesh::of(int64_t replicate, int64_t shard, int64_t context, int64_t tensor, int64_t pipeline) {
  Mesh mesh{{{"replicate", replicate}, {"shard", shard}, {"context", context}, {"tensor", tensor}}};
  if (pipeline > 1) mesh.axes.insert(mesh.axes.begin(), {"pipeline", pipeline});
  return mesh;
}

int Mesh::axis(std::string_view name) const {
  for (size_t i = 0; i < axes.size(); ++i) {
    if (axes[i].name == name) return static_cast<int>(i);
  }
  return -1;
}

int64_t Mesh::size(std::string_view name) const {
  const int found = axis(name);
  return found < 0 ? 1 : axes[static_cast<size_t>(found)].size;
}

int64_t Mesh::batch_ranks() const {
  return size("replicate") * size("shard");
}

Coordinates Mesh::coordinates(int64_t rank) const {
  Coordinates out(axes.size());
  for (size_t i = axes.size(); i-- > 0;) {
    out[i] = static_cast<int32_t>(rank % axes[i].size);
    rank /= axes[i].size;
  }
  return out;
}

int64_t Mesh::ranks() const {
  int64_t n = 1;
  for (const auto& axis : axes) n *= axis.size;
  return n;
}

}  // namespace strata::graph
