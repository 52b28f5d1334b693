// The decoder that all families are made of: what their ModelConfigs say, as a graph.
#pragma once

#include "models/model.h"

namespace strata::models {

// From tokens to the last norm. Parameters: embedding.weight, positions.weight where positions are learned,
// those of layers::decoder, and head.weight where it is not tied.
Hidden build_decoder(const ModelConfig& config, layers::Context& context);

}  // namespace strata::models
