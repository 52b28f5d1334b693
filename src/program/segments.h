// Nodes of a graph as the segments of a program.
#pragma once

#include <vector>

#include "graph/graph.h"
#include "program/script.h"

namespace strata::program {

// Where a node runs.
struct NodesOf {
  SegmentAt at;
  std::vector<int32_t> nodes;  // in the order of the graph
};
// The segments of all chunks, as all_segments() has them. What backward computes again belongs to I, or to W
// where only that reads it. InternalError where a segment reads what a later one makes.
std::vector<NodesOf> split_into_segments(const graph::Graph& graph, Backward backward, int32_t chunks);

}  // namespace strata::program
