// Adds to a dense model with latent attention an indexer with random weights (layers/indexer.h), as DeepSeek-V3.2 was made from
// DeepSeek-V3.1: a warm-up then trains only the indexer, and after it the model attends to the keys that it chooses.
#pragma once

#include <cstdint>
#include <vector>

#include "checkpoint/tensor_io.h"
#include "checkpoint/weights.h"
#include "models/model.h"

namespace strata::interop {

struct IndexerOptions {
  layers::IndexerDims dims = {.heads = 64, .dim = 128, .count = 2048};
  uint64_t seed = 1;
};

// deepseek3.2 for deepseek3 with a latent of queries. ConfigError for other models, and for sizes that do not fit.
models::ModelConfig with_indexer(const models::ModelConfig& dense, const IndexerOptions& options);

// The tensors of its files: those of `weights`, and random ones as a new run would start with. All arguments must outlive them.
std::vector<checkpoint::TensorView> tensors_with_indexer(const models::ModelConfig& dense,
                                                         const checkpoint::WeightSource& weights,
                                                         const models::ModelConfig& model,
                                                         const IndexerOptions& options);

}  // namespace strata::interop
