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

Mesh Mesh::of_one() {
  return {{{"data", 1}, {"tensor", 1}}};
}

int Mesh::axis(const std::string& name) const {
  for (size_t i = 0; i < axes.size(); ++i) {
    if (axes[i].name == name) return static_cast<int>(i);
  }
  return -1;
}

int64_t Mesh::ranks() const {
  int64_t n = 1;
  for (const auto& axis : axes) n *= axis.size;
  return n;
}

}  // namespace strata::graph
