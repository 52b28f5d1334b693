// Sums over all that ranks hold, as update graphs need them.
#pragma once

#include <string>
#include <vector>

#include "graph/graph.h"

namespace strata::optim {

// Of a value that each stage of a pipeline has of its own, the sum over them; the value itself where there is
// no pipeline.
graph::ValueId sum_over_stages(graph::Graph& graph, graph::ValueId own);

// What the squares of all values add up to, in partial sums. Where values lie in shards, a rank adds up what
// it has of those that lie alike, and one number goes over the ranks. A stage of a pipeline may have no
// values: then `nothing` names its zero.
std::vector<graph::ValueId> squares_of(graph::Graph& graph, const std::vector<graph::ValueId>& values,
                                       std::string nothing);

}  // namespace strata::optim
