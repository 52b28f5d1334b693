// A program under construction: its nodes are assigned to segments and have kernels, but no addresses yet.
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

// Splits the graph, which no later pass changes, into segments, binds their nodes and finds the contents of
// the workspace.
void bind_segments(Draft& draft, Binder& binder);

// Size of the workspace under the best possible layout.
int64_t least_workspace_bytes(const Draft& draft);
// Size of the workspace; computes its layout on first use.
int64_t workspace_bytes(Draft& draft);

// The accesses of the instructions of one list, by value, since addresses are not known yet.
std::vector<Access> accesses_of_values(const Program& program, const std::vector<Bound>& list);
// Whether the list has work on a queue other than the compute queue.
bool uses_several_queues(const graph::Graph& graph, const std::vector<Bound>& list);

}  // namespace strata::program
