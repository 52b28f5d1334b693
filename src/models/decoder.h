// The stacks of blocks that all families are made of: what their ModelConfigs say, as a graph.
#pragma once

#include "models/model.h"

namespace strata::models {

// From tokens to what the head reads, of a decoder or an encoder. Parameters: embedding.weight,
// positions.weight where positions are learned, token_types.weight and embedding_norm.* where there are such,
// those of layers::stack, head_transform.* and head.bias, and head.weight where it is not tied.
Hidden build_stack(const ModelConfig& config, layers::Context& context);

// The same of an encoder and a decoder that reads it. The encoder's parameters begin with "encoder.", the
// embedding is shared; relative_bias.weight and encoder.relative_bias.weight are the tables of distances.
Hidden build_encoder_decoder(const ModelConfig& config, layers::Context& context);

}  // namespace strata::models
