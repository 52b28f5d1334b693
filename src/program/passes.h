// Rewrites of a differentiated graph, before it is lowered.
#pragma once

#include <functional>
#include <vector>

#include "graph/graph.h"

namespace strata::program {

// What backward computes again instead of keeping.
enum class Recompute : uint8_t {
  kNone,
  kSelective,  // what a cheap kernel makes from values that are kept anyway: norm outputs, activations
  kFull,       // everything inside a layer, from the layer's inputs
};
std::string_view name_of(Recompute recompute);

// `of_layer` decides for each layer. The loss is never recomputed. In all modes, rows of the residual stream
// that ranks of the tensor axis share are gathered again, so that a rank saves only its own; with
// `gathers_again`, so are parameters that forward gathered from their shards.
void recompute_pass(graph::Graph& graph, const std::function<Recompute(int32_t)>& of_layer,
                    bool gathers_again = false);

// After nodes were added or moved: the node that makes each temporary value.
void renumber_producers(graph::Graph& graph);

// Removes nodes whose results are never read.
void prune_pass(graph::Graph& graph);

}  // namespace strata::program
