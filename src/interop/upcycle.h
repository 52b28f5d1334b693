// Upcycles a dense model to a mixture of experts: every FFN becomes copies of itself, or of its slices, after
// a router, and training continues from there (Komatsuzaki et al. 2023, arXiv 2212.05055).
#pragma once

#include <cstdint>
#include <vector>

#include "checkpoint/tensor_io.h"
#include "checkpoint/weights.h"
#include "models/model.h"

namespace strata::interop {

struct UpcycleOptions {
  int64_t experts = 8;      // per layer: copies x granularity
  int64_t per_token = 2;    // experts per token
  int64_t granularity = 1;  // slices of an FFN along its inner width; each expert is one slice
  // Standard deviation of the normal noise added to each expert's weights, as a fraction of theirs.
  double noise = 0;
  // Fraction of each expert's inner units that are redrawn with the mean and deviation of the weights that
  // they replace (Nakamura et al. 2025, arXiv 2502.19261).
  double fresh = 0;
  uint64_t seed = 1;
};

// The upcycled model: Mixtral for Llama and Mistral, Qwen3-MoE for Qwen3. ConfigError if the family has no
// such counterpart or the options do not fit.
//
// Experts are ordered copy by copy. The slices of a copy have equal router logits, so they are selected
// together; down projections are scaled by the granularity, because the routing weights of a token's slices
// add up to 1. Without noise and redrawn units the logits equal the dense model's.
models::ModelConfig upcycled(const models::ModelConfig& dense, const UpcycleOptions& options);

// The tensors of its files, computed from `weights` when they are read. All arguments must outlive them.
std::vector<checkpoint::TensorView> upcycled_tensors(const models::ModelConfig& dense,
                                                     const checkpoint::WeightSource& weights,
                                                     const models::ModelConfig& model,
                                                     const UpcycleOptions& options);

}  // namespace strata::interop
