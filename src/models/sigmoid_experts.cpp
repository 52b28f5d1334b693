#include "models/sigmoid_experts.h"

#include <charconv>

#include "base/json.h"
#include "models/llama_layout.h"

namespace strata::models {

Experts read_sigmoid_experts(const ConfigJson& json, const SigmoidDefaults& defaults) {
  using Route = ops::RouteAttrs;
  const auto count_of = [&](const char* key, int64_t fallback) { return json.integer_or(key, fallback); };
  const int64_t width = count_of("moe_intermediate_size", defaults.intermediate_size);
  const int64_t first =
      defaults.first >= 0 ? defaults.first : json.count_or("first_k_dense_replace", defaults.dense_layers);
  if (first >= json.integer("num_hidden_layers")) return {};
  const int64_t count = count_of("n_routed_experts", count_of("num_local_experts", defaults.count));
  return {.count = count,
          .intermediate_size = width,
          .route = {.k = count_of("num_experts_per_tok", defaults.per_token),
                    .score = Route::Score::kSigmoid,
                    .normalize = json.boolean_or("norm_topk_prob", true),
                    .normalize_eps = 1e-20,
                    .scale = json.real_or("routed_scaling_factor", defaults.scale),
                    .groups = count_of("n_group", defaults.groups),
                    .kept_groups = count_of("topk_group", defaults.kept_groups),
                    .group_score = Route::GroupScore::kBestTwo},
          .router_bias = true,
          .bias_rate = 1e-3,
          .shared_size = width * count_of("n_shared_experts", defaults.shared),
          .first = first};
}

void write_sigmoid_experts(nlohmann::ordered_json& json, const Experts& experts) {
  if (experts.count == 0) {
    json["first_k_dense_replace"] = json["num_hidden_layers"];
    return;
  }
  json["first_k_dense_replace"] = experts.first;
  json["moe_intermediate_size"] = experts.intermediate_size;
  json["n_group"] = experts.route.groups;
  json["n_routed_experts"] = experts.count;
  json["n_shared_experts"] = experts.shared_size / experts.intermediate_size;
  json["norm_topk_prob"] = experts.route.normalize;
  json["num_experts_per_tok"] = experts.route.k;
  json["routed_scaling_factor"] = experts.route.scale;
  json["topk_group"] = experts.route.kept_groups;
}

namespace {

// The layer of a tensor after the last layer; -1: it is not such a tensor.
int64_t extra_layer(const ModelConfig& config, std::string_view name) {
  constexpr std::string_view kLayers = "model.layers.";
  if (!name.starts_with(kLayers)) return -1;
  int64_t layer = -1;
  std::from_chars(name.data() + kLayers.size(), name.data() + name.size(), layer);
  return layer >= config.layers ? layer : -1;
}

}  // namespace

void read_prediction(const ConfigJson& json, ModelConfig& config) {
  config.predict_layers = json.count_or("num_nextn_predict_layers", 0);
}

void write_prediction(nlohmann::ordered_json& json, const ModelConfig& config) {
  json["num_nextn_predict_layers"] = config.predict_layers;
}

bool ignores_prediction(const ModelConfig& config, std::string_view name) {
  if (llama_ignores(config, name)) return true;
  const int64_t layer = extra_layer(config, name);
  if (layer < 0) return false;
  return layer >= config.layers + config.predict_layers || name.ends_with(".embed_tokens.weight") ||
         name.ends_with(".shared_head.head.weight");
}

}  // namespace strata::models
