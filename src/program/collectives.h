// Collectives in a program: how the nodes that move data between ranks are brought together, and what a
// communicator is asked for.
#pragma once

#include "comm/communicator.h"
#include "graph/graph.h"

namespace strata::program {

// Works on a localized graph. A value that is gathered only to be packed is gathered right before that; all
// that a layer gathers or reduces goes in one call; sums of whole gradients replace their terms; the update's
// sums follow the order in which backward makes the terms. In forward and backward, gathers start `prefetch`
// calls before their first use.
void group_collectives_pass(graph::Graph& graph, int64_t prefetch);

// What member `rank` of the axis' group asks for to carry out a node of the communication queue. `payload`:
// what sums of gradients are sent as.
comm::Operation operation_of(const graph::Graph& graph, const graph::Node& node, int rank, DType payload);

}  // namespace strata::program
