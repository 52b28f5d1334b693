#include "library/plan_shape.h"

#include <algorithm>

#include "library/layer_programs.h"

namespace strata::library {

namespace {

// Layers for which formulas have no closed form.
void add_kinds(const models::ModelConfig& model, planning::ModelShape& shape) {
  if (model.layer_kinds.empty() && !model.indexer) return;
  std::vector<ProgramKind> kinds;
  bool attends = false, has_ffn = false;
  for (int64_t layer = 0; layer < model.layers; ++layer) {
    const ProgramKind one{model.kind(layer), model.has_own_indexer(layer)};
    attends = attends || model.has_attention(layer);
    has_ffn = has_ffn || one.kind.has_ffn;
    auto at = std::find(kinds.begin(), kinds.end(), one);
    if (at == kinds.end()) at = kinds.insert(at, one);
    shape.each.push_back({static_cast<int32_t>(at - kinds.begin()), model.experts.at(layer)});
  }
  // Sizes that no layer has; ranks share the heads of the others.
  if (!attends && model.state_space) shape.heads = shape.kv_heads = model.state_space->heads;
  if (!attends && model.delta) shape.heads = shape.kv_heads = model.delta->key_heads;
  if (!has_ffn) shape.ffn = shape.hidden * shape.heads;
  shape.costs = layer_programs(model, std::move(kinds));
}

}  // namespace

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
  add_kinds(model, shape);
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
