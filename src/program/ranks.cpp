#include "program/ranks.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "program/pipeline.h"

namespace strata::program {

Ranks::Ranks(const CompileOptions& options) : Ranks(comm::single_process_world(), options) {}

Ranks::Ranks(std::unique_ptr<comm::World> alone, const CompileOptions& options) : Ranks(*alone, options) {
  own_world_ = std::move(alone);
}

Ranks::Ranks(comm::World& world, const CompileOptions& options)
    : world_(world), mesh_(options.mesh), coordinates_(mesh_.coordinates(world.rank())) {
  if (options.pipeline) sharing_ = sharing_ranks(*options.pipeline);
  if (mesh_.ranks() != world.size())
    throw ConfigError("[parallel] the layout has {} ranks and {} run", mesh_.ranks(), world.size());
  groups_.push_back(world.group(std::vector{world.rank()}, "self"));
  int64_t stride = mesh_.ranks();
  for (const graph::Axis axis : graph::kAllAxes) {
    const int64_t size = mesh_.size(axis);
    stride /= size;
    std::vector<int> members;
    const int64_t first = world.rank() - coordinates_[axis] * stride;
    for (int64_t i = 0; i < size; ++i) members.push_back(static_cast<int>(first + i * stride));
    along_[axis] = group(members, std::string(name_of(axis)));
  }
  std::vector<int> everybody(static_cast<size_t>(world.size()));
  std::iota(everybody.begin(), everybody.end(), 0);
  all_ = group(everybody, "all");
  std::vector<int> batch;
  for (const int rank : everybody) {
    const graph::Coordinates at = mesh_.coordinates(rank);
    bool differs = false;
    for (const graph::Axis axis : graph::kAllAxes) {
      const bool is_free = axis == graph::Axis::kReplicate || axis == graph::Axis::kShard;
      differs = differs || (!is_free && at[axis] != coordinates_[axis]);
    }
    if (!differs) batch.push_back(rank);
  }
  batch_ = group(batch, "batch");
  // The axis is the first: its neighbours are as far apart as the others have ranks.
  const int64_t stage_ranks = mesh_.ranks() / mesh_.size(graph::Axis::kPipeline);
  for (size_t i = 0; i < sharing_.size(); ++i) {
    std::vector<int> members;
    for (const int32_t place : sharing_[i])
      members.push_back(static_cast<int>(place * stage_ranks + world.rank() % stage_ranks));
    if (std::find(members.begin(), members.end(), world.rank()) == members.end()) members = {world.rank()};
    among_.push_back(group(members, fmt::format("sharing-{}", i)));
  }
}

comm::Communicator* Ranks::group(const std::vector<int>& members, const std::string& name) const {
  if (members.size() == 1) return groups_.front().get();
  // What crosses hosts is added up within each of them first.
  groups_.push_back(world_.group(members, name, comm::among(world_.hosts(), members)));
  return groups_.back().get();
}

comm::Communicator& Ranks::over(const Over& which) const {
  comm::Communicator*& made = over_[which];
  if (made != nullptr) return *made;
  const auto& [axes, node_ranks, across] = which;
  std::vector<int> members;
  std::string name = node_ranks == 0 ? "" : across ? "across nodes of " : "within nodes of ";
  for (const graph::Axis axis : axes) name += fmt::format("{}{}", name.empty() ? "" : " x ", name_of(axis));
  for (int rank = 0; rank < world_.size(); ++rank) {
    const graph::Coordinates at = mesh_.coordinates(rank);
    bool differs = false;
    for (const graph::Axis axis : graph::kAllAxes) {
      const bool is_free = std::find(axes.begin(), axes.end(), axis) != axes.end();
      differs = differs || (!is_free && at[axis] != coordinates_[axis]);
    }
    if (!differs) members.push_back(rank);
  }
  if (node_ranks > 0) {
    const auto own = std::find(members.begin(), members.end(), world_.rank()) - members.begin();
    std::vector<int> some;
    for (int64_t i = 0; i < std::ssize(members); ++i) {
      const bool same = across ? i % node_ranks == own % node_ranks : i / node_ranks == own / node_ranks;
      if (same) some.push_back(members[static_cast<size_t>(i)]);
    }
    members = std::move(some);
  }
  made = group(members, name);
  return *made;
}

comm::Communicator& Ranks::among(const std::vector<int32_t>& places) const {
  const auto found = std::find(sharing_.begin(), sharing_.end(), places);
  STRATA_CHECK(found != sharing_.end(), "no ranks of the pipeline share that");
  return *among_[static_cast<size_t>(found - sharing_.begin())];
}

bool Ranks::is_first_holder(const graph::Placements& placements) const {
  return first_holder(placements) == world_.rank();
}

int64_t Ranks::first_holder(const graph::Placements& placements) const {
  graph::Coordinates first = coordinates_;
  for (const graph::Axis axis : graph::kAllAxes) {
    if (placements[axis] == graph::Placement::replicated()) first[axis] = 0;
  }
  return mesh_.rank_at(first);
}

int64_t Ranks::batch_part() const {
  return coordinates_[graph::Axis::kReplicate] * mesh_.size(graph::Axis::kShard) +
         coordinates_[graph::Axis::kShard];
}

int64_t Ranks::staging_bytes() const {
  int64_t bytes = 0;
  for (const auto& group : groups_) bytes += group->staging_bytes();
  return bytes;
}

}  // namespace strata::program
