// From the program of a whole mesh to that of one rank.
#pragma once

#include "graph/graph.h"

namespace strata::graph {

// Rewrites shapes, segments and attributes of sizes to those of the part that a rank holds: every rank has
// equal ones, so all run one program. The last of the passes that speak of global shapes. ConfigError naming
// the value that the mesh does not divide.
void localize(Graph& graph);

}  // namespace strata::graph
