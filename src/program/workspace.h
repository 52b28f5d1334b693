// The workspace of a sequence of instructions: which values need memory from when to when, and where they
// lie.
#pragma once

#include <vector>

#include "program/program.h"

namespace strata::program {

// An instruction as the memory plan sees it.
struct PlannedInstruction {
  int32_t node = 0;
  int64_t scratch_bytes = 0;
  SegmentAt segment = {};
  // The last instruction of the sequence that may run beside it: what it touches is in use until then. Itself
  // on the compute queue.
  int32_t done = 0;
  // The first and the last of the loop that it is of: what it touches and what was there before the loop is
  // in use until the loop's end.
  struct Loop {
    int32_t first = -1, last = -1;
  } loop = {};
};
using Sequence = std::vector<PlannedInstruction>;

// Values that the sequence touches, with in-place outputs sharing their input's buffer. Who touches a view
// touches its whole.
class WorkspacePlanner {
 public:
  // What one segment leaves for another lies in `pools` where micro-batches overlap, whose slots get their
  // sizes; else among the rest. `in_messages`: by value, what lies in the slots of messages already; empty:
  // none does.
  WorkspacePlanner(const graph::Graph& graph, const RowViews& views, const Sequence& sequence,
                   Pools pools = {}, std::vector<Operand> in_messages = {});

  // What any layout needs at least, pools included.
  int64_t least_bytes() const { return pools_.bytes() + most_alive(lifetimes_).bytes; }
  // With offsets from the workspace's start, where they lie in front of the layout.
  const std::vector<Pool>& pools() const { return pools_.all(); }
  // Gives every value of the workspace but views its place: an offset from the workspace's start, or in a
  // slot.
  Layout plan(std::vector<Place>& places) const;

  // Offset of the scratch of instruction i of the sequence, within the layout.
  static int64_t scratch_offset(const Layout& layout, size_t sequence_size, size_t i) {
    return layout.offsets[layout.offsets.size() - sequence_size + i];
  }

 private:
  void find_lives(const graph::Graph& graph, const RowViews& views, const Sequence& sequence);
  void share_in_place(const graph::Graph& graph, const Sequence& sequence);
  void fill_pools();
  int times_read(const graph::Node& node, graph::ValueId owner) const;
  bool lives(graph::ValueId id) const {
    return id != graph::kNone && buffer_[static_cast<size_t>(id)] != graph::kNone;
  }
  bool is_pooled(graph::ValueId id) const {
    return !in_pool_.empty() && in_pool_[static_cast<size_t>(id)].base != Base::kAbsent;
  }

  bool is_message(graph::ValueId id) const {
    return !in_messages_.empty() && in_messages_[static_cast<size_t>(id)].base != Base::kAbsent;
  }

  Pools pools_;
  std::vector<Operand> in_messages_;
  std::vector<graph::ValueId> order_;  // as the sequence meets them
  // By value; kNone and empty where the sequence does not touch it.
  std::vector<graph::ValueId> buffer_;           // whose memory a value uses
  std::vector<Lifetime> own_lives_;              // of values
  std::vector<Lifetime> lives_;                  // of buffers, in-place chains joined
  std::vector<int32_t> last_use_;                // of buffers: the last instruction that touches them
  std::vector<Operand> in_pool_;                 // of buffers: where in a slot; absent: in the workspace
  std::vector<std::vector<SegmentAt>> used_in_;  // of buffers: segments that touch them, in order
  std::vector<Lifetime> lifetimes_;  // of what is laid out: buffers, then each instruction's scratch
};

}  // namespace strata::program
