// Parameters that families share.
#pragma once

#include "models/model.h"

namespace strata::models {

// GPT-2's rule, which Megatron-LM and others use for every decoder: projections into the residual stream
// start smaller by √(2 · layers).
double residual_init_std(const ModelConfig& config);

// The table [V, d] of the head: the embedding's where they are tied, else a parameter of its own.
graph::ValueId head_table(const ModelConfig& config, layers::Context& context, graph::ValueId embedding);

}  // namespace strata::models
