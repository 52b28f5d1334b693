// What a node of the communication queue asks of a group of ranks, in bytes.
#pragma once

#include <cstdint>

#include "graph/reshard.h"
#include "hardware/cluster_spec.h"
#include "program/program.h"

namespace strata::program {

struct NodeExchange {
  hardware::Exchange kind = hardware::Exchange::kAllReduce;
  graph::Axis axis = {};
  int64_t ranks = 1;
  int64_t distance = 1;        // of a send: places along the axis
  int64_t bytes = 0;           // of the value, as hardware::exchange_seconds takes them
  int64_t sent_bytes = 0;      // by the largest rank, to all others together
  bool is_among_some = false;  // places of the pipeline that share a parameter
};

// Of a reshard on a localized graph. `payload`: what sums of gradients are sent as. Of n ranks each sends (n − 1)/n
// of a value reduced into shards, the whole of its shard to n − 1 others in a gather, and both in an all-reduce.
NodeExchange exchange_of(const graph::Graph& graph, const graph::Node& node, DType payload);

// The group of ranks along an axis, or over several.
hardware::Group group_along(const graph::Mesh& mesh, graph::Axis axis);
hardware::Group group_over(const graph::Mesh& mesh, const std::vector<graph::Axis>& axes);

}  // namespace strata::program
