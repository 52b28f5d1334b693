// Loops for the tokens that the first pass of a dispatch does not take (ops/expert_dispatch).
#pragma once

#include <vector>

#include "graph/graph.h"
#include "program/script.h"

namespace strata::program {

// Of each value: whether it holds what has come to a rank's experts in a pass, or what is made of that. What
// takes it back to tokens, and sums of gradients, do not.
std::vector<bool> values_of_passes(const graph::Graph& graph);

// Behind the nodes that take rows back to tokens, or add gradients of experts up, a loop of all that they
// need for another pass, from its dispatch on: nothing that the first pass has left is read. In front of it
// stands a remaining_tokens, which ends it at once where the first pass took all tokens.
enum class PassesOf : uint8_t {
  kBackward,  // nodes of I and W. Before recompute_pass, which then sees what the loops read of forward
  kForward,   // of F, and of R behind recompute_pass
};
void add_expert_passes(graph::Graph& graph, PassesOf nodes, Backward backward);

}  // namespace strata::program
