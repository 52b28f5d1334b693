// The stacks of blocks that all families consist of: builds a graph from a ModelConfig.
#pragma once

#include "models/model.h"

namespace strata::models {

// From tokens to the head's input, of a decoder or an encoder. Parameters: embedding.weight, positions.weight
// if positions are learned, token_types.weight and embedding_norm.* if the model has them, those of
// layers::stack, head_transform.* and head.bias, and head.weight if it is not tied.
//
// The last norm of a decoder is followed by its predict_layers (layers::Settings::predicts), each with the
// embedding and the head of the model (DeepSeek-V3, arXiv 2412.19437, §2.2). Module k = 1, 2, … of layer L =
// layers + k - 1:
//   h(k) = final_norm(block(in [embedding_norm(embedding of the token k places ahead) |
//   hidden_norm(h(k-1))]))
// predicts the token k + 1 places ahead. As in the published weights' use (vLLM, transformers' MtpModel), the
// embedding's half comes first, and h(0) is the head's input, after the last norm. Parameters:
// layers.L.predict.{embedding_norm,hidden_norm,in,final_norm}.weight and those of the block, layers.L.….
Hidden build_stack(const ModelConfig& config, layers::Context& context);

// Like build_stack(), for an encoder and a decoder that reads it. The encoder's parameters begin with
// "encoder.", the embedding is shared; relative_bias.weight and encoder.relative_bias.weight are the tables
// of distances.
Hidden build_encoder_decoder(const ModelConfig& config, layers::Context& context);

}  // namespace strata::models
