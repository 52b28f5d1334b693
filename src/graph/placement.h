// Placement of a value's parts on a mesh of ranks. One placement per mesh axis: replicated, sharded along a
// dimension, or a partial sum. On an axis of size one all three are the same.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace strata::graph {

struct Placement {
  enum class Kind : uint8_t { kReplicated, kSharded, kPartial };
  Kind kind = Kind::kReplicated;
  int dim = 0;  // of kSharded

  static constexpr Placement replicated() { return {}; }
  static constexpr Placement sharded(int dim) { return {Kind::kSharded, dim}; }
  static constexpr Placement partial() { return {Kind::kPartial, 0}; }
  auto operator<=>(const Placement&) const = default;
};
std::string str(Placement placement);  // "R", "S0", "P"

// The axes of the mesh of ranks, outermost first: ranks are in row-major order of their coordinates, so that
// neighbours on the last axis are neighbours in rank. A dimension that is sharded on several axes is cut by
// the first of them, its parts by the next.
enum class Axis : uint8_t {
  kPipeline,   // each rank runs its own program for its layers
  kReplicate,  // splits the batch
  kShard,      // splits the batch, and ZeRO's shards
  kContext,    // splits sequences
  kTensor,     // splits weights and the activations that they produce
};
inline constexpr std::array kAllAxes{Axis::kPipeline, Axis::kReplicate, Axis::kShard, Axis::kContext,
                                     Axis::kTensor};
inline constexpr size_t kAxes = kAllAxes.size();
std::string_view name_of(Axis axis);

template <typename T>
struct PerAxis {
  std::array<T, kAxes> values = {};

  constexpr T& operator[](Axis axis) { return values[static_cast<size_t>(axis)]; }
  constexpr const T& operator[](Axis axis) const { return values[static_cast<size_t>(axis)]; }
  auto operator<=>(const PerAxis&) const = default;
};

// A rank's place on each axis.
using Coordinates = PerAxis<int32_t>;
// The coordinates in a rank's constants (graph/reshard.h).
inline const Coordinates& coordinates_in(const std::byte* rank_block) {
  return *reinterpret_cast<const Coordinates*>(rank_block);
}
// This rank's coordinate on an axis, read from its constants. For an axis of one rank they are not read.
inline int64_t place_in(const int32_t* rank_block, Axis axis, int64_t ranks) {
  return ranks > 1 ? rank_block[static_cast<size_t>(axis)] : 0;
}

inline const Coordinates& coordinates_in(const int32_t* rank_block) {
  return *reinterpret_cast<const Coordinates*>(rank_block);
}

// Placement on each axis: replicated if nothing is set.
class Placements {
 public:
  Placements() = default;  // not decided yet
  Placements(std::initializer_list<std::pair<Axis, Placement>> some) {
    for (const auto& [axis, placement] : some) set(axis, placement);
  }

  Placement operator[](Axis axis) const { return along_[axis]; }
  void set(Axis axis, Placement placement) {
    along_[axis] = placement;
    decided_ = true;
  }
  void decide() { decided_ = true; }
  bool decided() const { return decided_; }
  auto operator<=>(const Placements&) const = default;

 private:
  PerAxis<Placement> along_;
  bool decided_ = false;
};

// The number of ranks along each axis.
class Mesh {
 public:
  Mesh() = default;  // of one rank
  static Mesh of(int64_t replicate, int64_t shard, int64_t context, int64_t tensor, int64_t pipeline = 1) {
    Mesh mesh;
    mesh.sizes_ = {{pipeline, replicate, shard, context, tensor}};
    return mesh;
  }
  static Mesh of_one() { return {}; }
  int64_t size(Axis axis) const { return sizes_[axis]; }
  int64_t batch_ranks() const;  // over which a batch is split by its sequences
  int64_t ranks() const;
  Coordinates coordinates(int64_t rank) const;
  int64_t rank_at(const Coordinates& coordinates) const;
  // What people are shown: the pipeline only if there is one.
  std::span<const Axis> shown_axes() const;

 private:
  PerAxis<int64_t> sizes_{{1, 1, 1, 1, 1}};
};

// One way to split an op along one mesh axis: if its inputs have these placements, the op run on the shards
// produces outputs with those placements. Missing optional inputs have any placement; inputs beyond the list
// are replicated.
struct PlacementOption {
  std::vector<Placement> inputs;
  std::vector<Placement> outputs;
};

}  // namespace strata::graph
