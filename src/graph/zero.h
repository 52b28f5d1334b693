// ZeRO (Rajbhandari et al. 2020) as placement along the shard axis:
//
//   stage 1  optimizer states and master weights are sharded; the whole weights are gathered after each update
//   stage 2  gradients too: each micro-batch's are reduced into shards
//   stage 3  weights are gathered layer by layer before their use and freed after it
//
// Parameters are cut along the first dimension, a share of every segment, padded if it does not divide. If an
// optimizer's states have an order over several segments, a share of these together is a shard.
#pragma once

#include <functional>

#include "graph/graph.h"

namespace strata::graph {

// How the shards of a parameter are cut: Padding::alignment and Padding::joined.
using PaddingOf = std::function<Padding(const Parameter&)>;

// For a graph that is not differentiated yet: shards the parameters that the axis does not cut already, and
// makes the nodes read the gathered values. Does nothing for stage 0 or an axis of one rank.
void shard_parameters(Graph& graph, int stage, const PaddingOf& padding_of);

// For a differentiated graph, stages 2 and 3: the gradients of sharded parameters are reduced into shards
// after their last writer of each micro-batch.
void scatter_gradients(Graph& graph, int stage);

// Whether a node puts a parameter together.
bool is_gather(const Graph& graph, const Node& node);
// Adds such a node with the same attributes again; its output.
ValueId gather_again(Graph& graph, const Node& node);

}  // namespace strata::graph
