// Where the parts of a value lie on a mesh of ranks. One placement per mesh axis: replicated, sharded along a
// dimension, or a partial sum. An axis of size one makes all three the same.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace strata::graph {

struct Placement {
  enum class Kind : uint8_t { kReplicated, kSharded, kPartial };
  Kind kind = Kind::kReplicated;
  int8_t dim = 0;  // of kSharded

  static constexpr Placement replicated() { return {}; }
  static constexpr Placement sharded(int dim) { return {Kind::kSharded, static_cast<int8_t>(dim)}; }
  static constexpr Placement partial() { return {Kind::kPartial, 0}; }
  friend bool operator==(const Placement&, const Placement&) = default;
};
std::string str(Placement placement);  // "R", "S0", "P"

struct MeshAxis {
  std::string name;  // "data", "tensor", …
  int64_t size = 1;
};

struct Mesh {
  std::vector<MeshAxis> axes;

  static Mesh of_one();                     // the axes of the design, each of size one
  int axis(const std::string& name) const;  // -1: the mesh has none of that name
  int64_t ranks() const;
};

// One way in which an op may be split along one mesh axis: if its inputs lie like this, the op run on the
// shards gives outputs that lie like that. Missing optional inputs hold any placement.
struct PlacementOption {
  std::vector<Placement> inputs;
  std::vector<Placement> outputs;
};

}  // namespace strata::graph
