// A mixture of experts from a dense model ("upcycling"): every FFN becomes copies of itself, or of pieces of
// itself, behind a router, and training goes on from there (Komatsuzaki et al. 2023, arXiv 2212.05055).
#pragma once

#include <cstdint>
#include <vector>

#include "checkpoint/tensor_io.h"
#include "checkpoint/weights.h"
#include "models/model.h"

namespace strata::interop {

struct UpcycleOptions {
  int64_t experts = 8;      // of each layer, the pieces of all copies counted
  int64_t per_token = 2;    // of those
  int64_t granularity = 1;  // pieces that an FFN is cut into by its inner width; each expert is one of them
  // Each expert's weights move by normal noise of this share of their standard deviation.
  double noise = 0;
  // Of each expert's inner units this share starts anew, with mean and deviation of the weights that stood
  // there (Nakamura et al. 2025, arXiv 2502.19261).
  double fresh = 0;
  uint64_t seed = 1;
};

// What the model becomes: Llama and Mistral a Mixtral, Qwen3 a Qwen3-MoE. ConfigError where there is no such
// family for it, or where the numbers do not fit.
//
// Experts stand copy by copy, and the pieces of a copy have equal logits, so that they are chosen together;
// the last product makes up for their weights, which add up to 1 over all pieces of a token. Without noise
// and fresh units the logits are the dense model's.
models::ModelConfig upcycled(const models::ModelConfig& dense, const UpcycleOptions& options);

// The tensors of its files, made from those of `weights` as they are read; both must outlive them.
std::vector<checkpoint::TensorView> upcycled_tensors(const models::ModelConfig& dense,
                                                     const checkpoint::WeightSource& weights,
                                                     const models::ModelConfig& model,
                                                     const UpcycleOptions& options);

}  // namespace strata::interop
