// The workspace of a sequence of instructions: which values need memory from when to when, and where they
// lie.
#pragma once

#include <vector>

#include "program/binder.h"
#include "program/program.h"

namespace strata::program {

// Values that the sequence touches, with in-place outputs sharing their input's buffer.
class WorkspacePlanner {
 public:
  WorkspacePlanner(const graph::Graph& graph, const std::vector<Bound>& sequence);

  // What any layout needs at least.
  int64_t least_bytes() const { return most_alive(lifetimes_).bytes; }
  // Gives every value of the workspace its place, with offsets from the workspace's start.
  Layout plan(std::vector<Place>& places) const;

  // Offset of the scratch of instruction i of the sequence, within the workspace.
  static int64_t scratch_offset(const Layout& layout, size_t sequence_size, size_t i) {
    return layout.offsets[layout.offsets.size() - sequence_size + i];
  }

 private:
  void find_lives(const graph::Graph& graph, const std::vector<Bound>& sequence);
  void share_in_place(const graph::Graph& graph, const std::vector<Bound>& sequence);
  int times_read(const graph::Node& node, graph::ValueId owner) const;
  bool lives(graph::ValueId id) const {
    return id != graph::kNone && buffer_[static_cast<size_t>(id)] != graph::kNone;
  }

  std::vector<graph::ValueId> order_;  // as the sequence meets them
  // By value; kNone and empty where the sequence does not touch it.
  std::vector<graph::ValueId> buffer_;  // whose memory a value uses
  std::vector<Lifetime> own_lives_;     // of values
  std::vector<Lifetime> lives_;         // of buffers, in-place chains joined
  std::vector<Lifetime> lifetimes_;     // of what is laid out: buffers, then each instruction's scratch
};

}  // namespace strata::program
