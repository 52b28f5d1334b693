#include "library/plan_shape.h"

#include <algorithm>

namespace strata::library {

planning::ModelShape shape_of(const models::ModelConfig& model) {
  planning::ModelShape shape{.layers = model.blocks(),
                             .hidden = model.hidden_size,
                             .heads = model.heads,
                             .kv_heads = model.kv_heads,
                             .head_dim = model.head_dim,
                             .ffn = model.intermediate_size,
                             .vocab = model.vocab_size,
                             .gated = model.gated,
                             .tied = model.tied};
  if (model.latent) {
    shape.latent = {.query_rank = model.latent->query_rank,
                    .key_value_rank = model.latent->rank,
                    .rope_dim = model.latent->rotary_dim,
                    .nope_dim = model.latent->plain_dim,
                    .value_dim = model.latent->value_dim};
  }
  const models::Experts& experts = model.experts;
  if (experts.count == 0) return shape;
  int64_t with_experts = 0;
  for (int64_t layer = 0; layer < model.layers; ++layer) with_experts += experts.at(layer) ? 1 : 0;
  shape.moe = {.experts = experts.count,
               .per_token = experts.route.k,
               .shared = experts.shared_size / std::max<int64_t>(1, experts.intermediate_size),
               .width = experts.intermediate_size,
               .every = std::max<int64_t>(1, experts.period),
               .dense_layers = experts.period > 1 ? 0 : model.blocks() - with_experts};
  return shape;
}

}  // namespace strata::library
