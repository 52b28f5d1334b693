// Sums over all that ranks hold, as update graphs need them.
#pragma once

#include <string>
#include <vector>

#include "graph/graph.h"

namespace strata::optim {

// The sum over the stages of a pipeline of a value that each stage has; the value itself if there is no
// pipeline.
graph::ValueId sum_over_stages(graph::Graph& graph, graph::ValueId own);

// The sum of the squares of all values, as partial sums. If values are sharded, a rank adds up its shards of
// those with equal placements, and one number is summed over the ranks. A stage of a pipeline may have no
// values: then `nothing` names its zero.
std::vector<graph::ValueId> squares_of(graph::Graph& graph, const std::vector<graph::ValueId>& values,
                                       std::string nothing);

}  // namespace strata::optim
