// Kimi Linear: three layers of Kimi delta attention, which decays each channel of its keys, to one of latent attention
// without positions; after the first layers experts with a shared one, chosen as DeepSeek-V3 chooses them.

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/json.h"
#include "models/decoder.h"
#include "models/families.h"
#include "models/hybrid.h"
#include "models/llama_layout.h"

namespace strata::models {
namespace {

// The published files number layers from 1.
std::vector<layers::LayerKind> read_numbered(const ConfigJson& linear, int64_t layers) {
  std::vector<layers::LayerKind> kinds(static_cast<size_t>(layers), {layers::Mixer::kAbsent});
  const auto mark = [&](const char* key, layers::Mixer mixer) {
    for (const int64_t number : linear.integers(key)) {
      if (number < 1 || number > layers)
        linear.reject(key, fmt::format("layer {}", number), fmt::format("1 to {}", layers));
      layers::LayerKind& kind = kinds[static_cast<size_t>(number - 1)];
      if (kind.mixer != layers::Mixer::kAbsent)
        linear.reject(key, fmt::format("layer {} again", number),
                      "each layer once in kda_layers or full_attn_layers");
      kind.mixer = mixer;
    }
  };
  mark("full_attn_layers", layers::Mixer::kAttention);
  mark("kda_layers", layers::Mixer::kDelta);
  for (size_t i = 0; i < kinds.size(); ++i) {
    if (kinds[i].mixer != layers::Mixer::kAbsent) continue;
    linear.reject("kda_layers", fmt::format("no layer {}", i + 1),
                  "each layer once in kda_layers or full_attn_layers");
  }
  return kinds;
}

std::vector<layers::LayerKind> read_all_kinds(const ConfigJson& json, const std::optional<ConfigJson>& linear,
                                              int64_t layers) {
  if (!json.has("layer_types") && linear && linear->has("full_attn_layers") && linear->has("kda_layers"))
    return read_numbered(*linear, layers);
  if (json.has("layer_types")) return read_kinds(json, layers, kLinearNames, 4, layers::Mixer::kDelta);
  std::vector<layers::LayerKind> kinds;
  for (int64_t i = 0; i < layers; ++i)
    kinds.push_back({i > 0 && i % 4 == 0 ? layers::Mixer::kAttention : layers::Mixer::kDelta});
  return kinds;
}

// A count under its published name, or under that of transformers.
int64_t count_of(const ConfigJson& json, const char* published, const char* other, int64_t fallback) {
  return json.integer_or(published, json.integer_or(other, fallback));
}

Experts read_experts(const ConfigJson& json, int64_t layers) {
  using Route = ops::RouteAttrs;
  int64_t first = json.count_or("first_k_dense_replace", 1);
  const std::vector<std::string> kinds = json.texts("mlp_layer_types");
  if (!kinds.empty()) {
    if (static_cast<int64_t>(kinds.size()) != layers)
      json.reject("mlp_layer_types", fmt::format("{} entries", kinds.size()),
                  fmt::format("one for each of {} layers", layers));
    first = std::find(kinds.begin(), kinds.end(), "sparse") - kinds.begin();
    for (size_t i = 0; i < kinds.size(); ++i) {
      if (kinds[i] != (static_cast<int64_t>(i) < first ? "dense" : "sparse"))
        json.reject("mlp_layer_types", fmt::format("\"{}\" for layer {}", kinds[i], i),
                    "\"dense\" for the first layers and \"sparse\" for all after them");
    }
  }
  if (first >= layers) return {};
  const int64_t width = json.integer_or("moe_intermediate_size", 1024);
  return {.count = count_of(json, "num_experts", "num_local_experts", 256),
          .intermediate_size = width,
          .route = {.k = count_of(json, "num_experts_per_token", "num_experts_per_tok", 8),
                    .score = Route::Score::kSigmoid,
                    .normalize = json.boolean_or("moe_renormalize", json.boolean_or("norm_topk_prob", true)),
                    .normalize_eps = 1e-20,
                    .scale = json.real_or("routed_scaling_factor", 2.446),
                    .groups = count_of(json, "num_expert_group", "n_group", 1),
                    .kept_groups = json.integer_or("topk_group", 1),
                    .group_score = Route::GroupScore::kBestTwo},
          .router_bias = true,
          .bias_rate = 1e-3,
          .shared_size = width * count_of(json, "num_shared_experts", "n_shared_experts", 1),
          .first = first,
          .balance_coefficient = 1e-4};
}

ModelConfig read(const std::string& text, const std::string& where) {
  const ConfigJson json(text, where);
  ModelConfig config = read_llama_keys(json, kKimiLinear, {.norm_eps = 1e-5, .pad_id = 163839});
  config.max_positions = count_of(json, "model_max_length", "max_position_embeddings", 1048576);
  config.positions = Positions::kAbsent;
  json.require_equal("num_key_value_heads", config.heads);
  json.require_equal("hidden_act", "silu");
  config.kv_heads = config.heads;
  const layers::LatentDims dims{.query_rank = json.count_or("q_lora_rank", 0),
                                .rank = json.integer_or("kv_lora_rank", 512),
                                .plain_dim = json.integer_or("qk_nope_head_dim", 128),
                                .rotary_dim = json.integer_or("qk_rope_head_dim", 64),
                                .value_dim = json.integer_or("v_head_dim", 128)};
  config.latent = dims;
  config.head_dim = dims.head_dim();
  config.out_bias = json.boolean_or("attention_bias", false);
  const std::optional<ConfigJson> linear = json.part("linear_attn_config");
  config.layer_kinds = read_all_kinds(json, linear, config.layers);
  const auto size_of = [&](const char* published, const char* other, int64_t fallback) {
    const int64_t outside = json.integer_or(other, fallback);
    return linear ? linear->integer_or(published, outside) : outside;
  };
  const int64_t heads = size_of("num_heads", "linear_num_heads", 32);
  const int64_t head_dim = size_of("head_dim", "linear_head_dim", 128);
  config.delta = layers::DeltaDims{.key_heads = heads,
                                   .value_heads = heads,
                                   .key_dim = head_dim,
                                   .value_dim = head_dim,
                                   .taps = size_of("short_conv_kernel_size", "linear_conv_kernel_dim", 4),
                                   .decays_by_channel = true,
                                   .gate_rank = head_dim,
                                   .sigmoid_gate = true,
                                   .norm_eps = config.norm_eps,
                                   .least_rate = 1,
                                   .most_rate = 16,
                                   .least_step = 1e-3,
                                   .most_step = 0.1,
                                   .step_floor = 1e-4};
  config.experts = read_experts(json, config.layers);
  return config;
}

std::string write(const ModelConfig& config, DType dtype) {
  auto json = llama_keys(config, "KimiLinearForCausalLM", dtype);
  const layers::LatentDims& dims = *config.latent;
  const layers::DeltaDims& delta = config.delta.value();
  json.erase("rope_theta");
  json.erase("rope_scaling");
  json.erase("max_position_embeddings");
  json["attention_bias"] = config.out_bias;
  json["kv_lora_rank"] = dims.rank;
  auto attention = nlohmann::ordered_json::array(), linear = nlohmann::ordered_json::array();
  for (int64_t i = 0; i < config.layers; ++i) (config.has_attention(i) ? attention : linear).push_back(i + 1);
  json["linear_attn_config"] = {{"full_attn_layers", attention},
                                {"head_dim", delta.key_dim},
                                {"kda_layers", linear},
                                {"num_heads", delta.key_heads},
                                {"short_conv_kernel_size", delta.taps}};
  json["model_max_length"] = config.max_positions;
  json["q_lora_rank"] = dims.query_rank > 0 ? nlohmann::ordered_json(dims.query_rank) : nullptr;
  json["qk_nope_head_dim"] = dims.plain_dim;
  json["qk_rope_head_dim"] = dims.rotary_dim;
  json["v_head_dim"] = dims.value_dim;
  const Experts& experts = config.experts;
  json["first_k_dense_replace"] = experts.count > 0 ? experts.first : config.layers;
  if (experts.count > 0) {
    json["moe_intermediate_size"] = experts.intermediate_size;
    json["moe_renormalize"] = experts.route.normalize;
    json["num_expert_group"] = experts.route.groups;
    json["num_experts"] = experts.count;
    json["num_experts_per_token"] = experts.route.k;
    json["num_shared_experts"] = experts.shared_size / experts.intermediate_size;
    json["routed_scaling_factor"] = experts.route.scale;
    json["topk_group"] = experts.route.kept_groups;
  }
  return dump_json(json, 2) + "\n";
}

std::vector<TensorRow> tensors(const ModelConfig& config) {
  return hybrid_tensors(
      config,
      {.block = "self_attn", .stored = DeltaNames::Stored::kSeparate, .norm = "o_norm", .out = "o_proj"},
      {.block = "block_sparse_moe", .gate = "w1", .up = "w3", .down = "w2", .shared = "shared_experts"});
}

// transformers writes the dense layers under the name of the others.
constexpr Family::OldEnding kOtherNames[] = {
    {".mlp.gate_proj.weight", ".block_sparse_moe.gate_proj.weight"},
    {".mlp.up_proj.weight", ".block_sparse_moe.up_proj.weight"},
    {".mlp.down_proj.weight", ".block_sparse_moe.down_proj.weight"},
};

constexpr PresetRow kPresets[] = {
    {"kda-30m", "small, three layers of Kimi delta attention to one of attention", 512, 8, 8, 8, 0, 1280,
     8192, 4096,
     R"("first_k_dense_replace":8,"kv_lora_rank":128,"qk_nope_head_dim":64,"qk_rope_head_dim":32,"v_head_dim":64,
        "linear_attn_config":{"num_heads":8,"head_dim":64},"tie_word_embeddings":true,"pad_token_id":null)"},
    {"kimi-linear-48b-a3b", "Kimi Linear 48B-A3B, 8 of 256 experts and a shared one", 2304, 27, 32, 32, 0,
     9216, 163840, 1048576, R"("bos_token_id":163584,"eos_token_id":163586)"},
};

}  // namespace

const Family kKimiLinear{
    .name = "kimi-linear",
    .model_type = "kimi_linear",
    .build = build_stack,
    .read = read,
    .write = write,
    .tensors = tensors,
    .ignored = llama_ignores,
    .optional_prefix = "model.",
    .old_endings = kOtherNames,
    .size_keys = {.head_dim = nullptr, .positions = "model_max_length"},
    .presets = kPresets,
};

}  // namespace strata::models
