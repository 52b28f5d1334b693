// A program while it is made: its nodes lie in segments with their kernels, addresses are not known yet.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "program/binder.h"
#include "program/program.h"
#include "program/waits.h"
#include "program/workspace.h"

namespace strata::program {

struct Draft {
  Program program;
  Backward backward = Backward::kCombined;
  std::shared_ptr<const Pipeline> pipeline = {};
  // As Program::segments.
  Program::ByList<std::vector<Bound>> bound = Program::ByList<std::vector<Bound>>(1);
  std::vector<WorkspacePlanner> workspaces = {};  // of a micro-batch, of the update
  bool is_placed = false;                         // values of the workspaces have their offsets in them

  const std::vector<Bound>& segment(const SegmentAt& at, bool accumulates = false) const {
    return bound[static_cast<size_t>(at.chunk)][static_cast<size_t>(at.segment)][accumulates ? 1 : 0];
  }
};
using Drafts = std::vector<std::shared_ptr<Draft>>;

// Cuts the graph, which no pass changes any more, into segments, binds their nodes and finds what the
// workspace must hold.
void bind_segments(Draft& draft, Binder& binder);

// What the workspace takes under the best of layouts.
int64_t least_workspace_bytes(const Draft& draft);
// What it takes; lays it out where that is not done yet.
int64_t workspace_bytes(Draft& draft);

// What the instructions of one list touch, by value: what lies where is not known yet.
std::vector<Access> accesses_of_values(const Program& program, const std::vector<Bound>& list);
// Whether a queue beside the compute queue has work in the list.
bool uses_several_queues(const graph::Graph& graph, const std::vector<Bound>& list);

}  // namespace strata::program
