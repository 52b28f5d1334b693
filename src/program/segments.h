// Nodes of a graph as the segments of a program.
#pragma once

#include <array>
#include <vector>

#include "graph/graph.h"
#include "program/script.h"

namespace strata::program {

// The nodes of each segment, in the order of the graph. What backward computes again belongs to I, or to W
// where only that reads it. InternalError where a segment reads what a later one makes.
std::array<std::vector<int32_t>, kSegments> split_into_segments(const graph::Graph& graph, Backward backward);

}  // namespace strata::program
