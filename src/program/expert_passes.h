// Loops for the tokens that the first pass of a dispatch does not take (ops/expert_dispatch).
#pragma once

#include <vector>

#include "graph/graph.h"
#include "program/script.h"

namespace strata::program {

// By value: whether it holds tokens received by a rank's experts in a pass, or is computed from them. Values
// returned to tokens, and sums of gradients, do not count.
std::vector<bool> values_of_passes(const graph::Graph& graph);

// After the nodes that return rows to tokens, or add up gradients of experts, inserts a loop of everything
// that they need for another pass, from its dispatch on: nothing that the first pass has left is read. A
// remaining_tokens node precedes the loop and ends it immediately if the first pass took all tokens.
enum class PassesOf : uint8_t {
  kBackward,  // nodes of I and W. Before recompute_pass, which then sees what loops read of forward
  kForward,   // of F, and of R after recompute_pass
};
void add_expert_passes(graph::Graph& graph, PassesOf nodes, Backward backward);

// Moves each dispatch of rows before the nodes that it does not depend on (a shared expert's backward), so
// that rows are in flight meanwhile.
void dispatch_early_pass(graph::Graph& graph);

}  // namespace strata::program
