// The ranks that run programs together, as one of them sees it: its place on the mesh, and its groups.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "comm/world.h"
#include "program/program.h"

namespace strata::program {

class Ranks {
 public:
  // The ranks of programs with these options. Every rank of the world constructs it at the same point. Throws
  // ConfigError if the mesh has a different number of ranks.
  Ranks(comm::World& world, const CompileOptions& options);
  // For a single process, in its own world.
  explicit Ranks(const CompileOptions& options);

  comm::World& world() const { return world_; }
  bool alone() const { return world_.size() == 1; }
  const graph::Mesh& mesh() const { return mesh_; }
  const graph::Coordinates& coordinates() const { return coordinates_; }
  // The ranks that differ from this one on one axis only, in its order.
  comm::Communicator& along(graph::Axis axis) const { return *along_[axis]; }
  comm::Communicator& pipeline() const { return along(graph::Axis::kPipeline); }
  // The ranks that differ from this one on these axes only, in row-major order: a separate group, which every
  // rank requests at the same point.
  comm::Communicator& over(const std::vector<graph::Axis>& axes) const { return over({axes, 0, false}); }
  // The `node_ranks` neighbours among them in this rank's node, or those at its place in all nodes.
  comm::Communicator& within(const std::vector<graph::Axis>& axes, int64_t node_ranks) const {
    return over({axes, node_ranks, false});
  }
  comm::Communicator& across(const std::vector<graph::Axis>& axes, int64_t node_ranks) const {
    return over({axes, node_ranks, true});
  }
  // Some of the pipeline's, one of sharing_ranks().
  comm::Communicator& among(const std::vector<int32_t>& places) const;
  // All of them; those among which the batch is split.
  comm::Communicator& all() const { return *all_; }
  comm::Communicator& batch() const { return *batch_; }
  // This rank's part of the batch, and the number of parts.
  int64_t batch_part() const;
  int64_t batch_parts() const { return mesh_.batch_ranks(); }
  // Whether this is the first of the ranks that hold the same shard of a value with this placement: sums over
  // ranks include only that one.
  bool is_first_holder(const graph::Placements& placements) const;
  int64_t first_holder(const graph::Placements& placements) const;  // that rank
  bool is_first() const { return world_.rank() == 0; }
  // Bytes that its groups hold outside the arena for everything prepared so far, excluding MPI's own buffers.
  int64_t staging_bytes() const;

 private:
  Ranks(std::unique_ptr<comm::World> alone, const CompileOptions& options);
  // Those of one rank are all the same.
  comm::Communicator* group(const std::vector<int>& members, const std::string& name) const;

  std::unique_ptr<comm::World> own_world_;
  comm::World& world_;
  graph::Mesh mesh_;
  graph::Coordinates coordinates_;
  mutable std::vector<std::unique_ptr<comm::Communicator>> groups_;  // the first: of this rank only
  graph::PerAxis<comm::Communicator*> along_;
  comm::Communicator *all_ = nullptr, *batch_ = nullptr;
  std::vector<std::vector<int32_t>> sharing_;
  struct Over {
    std::vector<graph::Axis> axes;
    int64_t node_ranks;  // 0: all
    bool across;
    auto operator<=>(const Over&) const = default;
  };
  comm::Communicator& over(const Over& which) const;
  mutable std::map<Over, comm::Communicator*> over_;  // made when asked for
  std::vector<comm::Communicator*> among_;            // by set; of this rank only if it is in none
};

}  // namespace strata::program
