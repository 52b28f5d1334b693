#include "models/parameters.h"

#include <cmath>

namespace strata::models {

double residual_init_std(const ModelConfig& config) {
  return config.init_std / std::sqrt(2.0 * static_cast<double>(config.layers));
}

graph::ValueId head_table(const ModelConfig& config, layers::Context& context, graph::ValueId embedding) {
  if (config.tied) return embedding;
  return layers::embedding_table(context, "head.weight", config.vocab_size, config.width, config.init_std);
}

}  // namespace strata::models
