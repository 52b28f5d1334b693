// Where the parts of a value lie on a mesh of ranks. One placement per mesh axis: replicated, sharded along a
// dimension, or a partial sum. An axis of size one makes all three the same.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace strata::graph {

struct Placement {
  enum class Kind : uint8_t { kReplicated, kSharded, kPartial };
  Kind kind = Kind::kReplicated;
  int dim = 0;  // of kSharded

  static constexpr Placement replicated() { return {}; }
  static constexpr Placement sharded(int dim) { return {Kind::kSharded, dim}; }
  static constexpr Placement partial() { return {Kind::kPartial, 0}; }
  friend bool operator==(const Placement&, const Placement&) = default;
};
std::string str(Placement placement);  // "R", "S0", "P"

struct MeshAxis {
  std::string name;
  int64_t size = 1;
};

// A rank's place on the axes of a mesh, one index an axis.
using Coordinates = std::vector<int32_t>;

// Ranks in row-major order of their coordinates: neighbours on the last axis are neighbours in rank. A
// dimension that is sharded on several axes is cut by the first of them, its parts by the next.
struct Mesh {
  std::vector<MeshAxis> axes;

  // "replicate" and "shard" split the batch, "context" sequences, "tensor" weights and what they make. In
  // front of them, where it has several ranks, "pipeline": each runs a program of its own for its layers.
  static Mesh of(int64_t replicate, int64_t shard, int64_t context, int64_t tensor, int64_t pipeline = 1);
  static Mesh of_one() { return of(1, 1, 1, 1); }
  int axis(std::string_view name) const;      // -1: the mesh has none of that name
  int64_t size(std::string_view name) const;  // 1 where the mesh has none of that name
  int64_t batch_ranks() const;                // over which a batch is split by its sequences
  int64_t ranks() const;
  Coordinates coordinates(int64_t rank) const;
};

// One way in which an op may be split along one mesh axis: if its inputs lie like this, the op run on the
// shards gives outputs that lie like that. Missing optional inputs hold any placement; inputs beyond the list
// are replicated.
struct PlacementOption {
  std::vector<Placement> inputs;
  std::vector<Placement> outputs;
};

}  // namespace strata::graph
