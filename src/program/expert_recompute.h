// Recompute inside the instruction of experts that ranks share.
#pragma once

#include <functional>

#include "program/passes.h"

namespace strata::program {

// Before recompute_pass(): what the experts' own backward makes again from values that are kept, in layers
// that recompute anything. What it makes is not kept any more from forward to backward.
void recompute_in_experts(graph::Graph& graph, const std::function<Recompute(int32_t)>& of_layer);

}  // namespace strata::program
