// The text model of Llama 4: experts in every layer or every second one, with a shared one. Each token goes
// to one expert, with its input scaled by the sigmoid of its logit. Most layers have rotary positions and
// attend within chunks of the text; the others have no positions, attend to all of it, and scale queries by
// position.
#include <algorithm>

#include "base/error.h"
#include "base/json.h"
#include "models/decoder.h"
#include "models/families.h"
#include "models/llama_layout.h"

namespace strata::models {
namespace {

constexpr LlamaDefaults kDefaults{.norm_eps = 1e-5, .max_positions = 131072, .rope_theta = 500000};
constexpr int64_t kChunk = 8192, kInterval = 4;

// Layers that rotate have chunks: layer_types and no_rope_layers must agree if both are present.
void read_windows(const ConfigJson& json, const std::string& where, ModelConfig& config) {
  config.sliding_window = {.size = json.integer_or("attention_chunk_size", kChunk),
                           .period = json.integer_or("no_rope_layer_interval", kInterval),
                           .chunked = true};
  if (const auto rotates = json.integers("no_rope_layers"); !rotates.empty()) {
    if (static_cast<int64_t>(rotates.size()) != config.layers) {
      throw DataError("[{}] \"no_rope_layers\" has {} entries: expected one for each of {} layers", where,
                      rotates.size(), config.layers);
    }
    std::vector<bool> windowed(rotates.begin(), rotates.end());
    for (int64_t i = 0; i < config.layers; ++i) {
      if (config.sliding_window.at(i) == windowed[static_cast<size_t>(i)]) continue;
      config.sliding_window.layers = windowed;
      break;
    }
  }
  json.require_layer_types("chunked_attention", config.layers, config.sliding_window);
}

// The layers in moe_layers, if present, or every n-th.
void read_expert_layers(const ConfigJson& json, const std::string& where, ModelConfig& config) {
  Experts& experts = config.experts;
  experts.period = json.integer_or("interleave_moe_layer_step", 1);
  if (!json.has("moe_layers")) return;
  const auto with = json.integers("moe_layers");
  for (const int64_t layer : with) {
    if (layer >= config.layers)
      throw DataError("[{}] \"moe_layers\" names layer {}: expected one of {} layers", where, layer,
                      config.layers);
  }
  const auto has = [&](int64_t layer) { return std::find(with.begin(), with.end(), layer) != with.end(); };
  std::vector<int64_t> dense;
  bool by_step = true;
  for (int64_t i = 0; i < config.layers; ++i) {
    if (!has(i)) dense.push_back(i);
    by_step = by_step && has(i) == experts.at(i);
  }
  if (by_step) return;
  experts.period = 1;
  experts.dense = std::move(dense);
  if (with.empty()) experts = {};
}

ModelConfig read(const std::string& text, const std::string& where) {
  const ConfigJson json(text, where);
  ModelConfig config = read_llama_keys(json, kLlama4, kDefaults);
  config.head_dim = json.integer_or("head_dim", 128);
  config.qkv_bias = config.out_bias = json.boolean_or("attention_bias", false);
  config.adjacent_rotary_pairs = true;
  config.rotates_in_windows = true;
  config.plain_qk_norm = json.boolean_or("use_qk_norm", true);
  if (json.flag_or("attn_temperature_tuning", true))
    config.temper = {json.integer_or("floor_scale", kChunk), json.real_or("attn_scale", 0.1)};
  read_windows(json, where, config);
  config.experts = {
      .count = json.integer_or("num_local_experts", 16),
      .intermediate_size = json.integer_or("intermediate_size", 8192),
      .route = {.k = json.integer_or("num_experts_per_tok", 1), .score = ops::RouteAttrs::Score::kSigmoid},
      .weighs_input = true,
      .shared_size = json.integer_or("intermediate_size", 8192),
      .jitter = json.real_or("router_jitter_noise", 0.0),
      .balance_coefficient = json.real_or("router_aux_loss_coef", 0.001)};
  config.intermediate_size = json.integer_or("intermediate_size_mlp", 16384);
  read_expert_layers(json, where, config);
  return config;
}

std::string write(const ModelConfig& config, DType dtype) {
  auto json = llama_keys(config, "Llama4ForCausalLM", dtype, kDefaults);
  const Experts& experts = config.experts;
  json["attention_bias"] = config.qkv_bias;
  json["attention_chunk_size"] = config.sliding_window.size;
  json["attn_scale"] = config.temper.floor > 0 ? config.temper.scale : 0.1;
  json["attn_temperature_tuning"] = config.temper.floor > 0;
  json["floor_scale"] = config.temper.floor > 0 ? config.temper.floor : kChunk;
  json["intermediate_size"] = experts.count > 0 ? experts.intermediate_size : config.intermediate_size;
  json["intermediate_size_mlp"] = config.intermediate_size;
  json["interleave_moe_layer_step"] = std::max<int64_t>(experts.period, 1);
  if (experts.count == 0 || !experts.dense.empty()) {
    auto with = nlohmann::ordered_json::array();
    for (int64_t i = 0; i < config.layers; ++i)
      if (experts.at(i)) with.push_back(i);
    json["moe_layers"] = with;
  }
  if (config.sliding_window.layers.empty()) {
    json["no_rope_layer_interval"] = config.sliding_window.period;
  } else {
    auto rotates = nlohmann::ordered_json::array();
    for (const bool windowed : config.sliding_window.layers) rotates.push_back(windowed ? 1 : 0);
    json["no_rope_layers"] = rotates;
  }
  json["num_experts_per_tok"] = experts.count > 0 ? experts.route.k : 1;
  json["num_local_experts"] = std::max<int64_t>(experts.count, 1);
  json["output_router_logits"] = false;
  json["router_aux_loss_coef"] = experts.balance_coefficient;
  json["router_jitter_noise"] = experts.jitter;
  json["use_qk_norm"] = config.plain_qk_norm;
  return dump_json(json, 2) + "\n";
}

std::vector<TensorRow> tensors(const ModelConfig& config) {
  return llama_tensors_with_experts(config, {.block = "feed_forward",
                                             .dense_block = "feed_forward",
                                             .router = "router",
                                             .fused = ExpertNames::Fused::kHalves});
}

constexpr PresetRow kPresets[] = {
    {"llama4-50m", "small, 1 of 8 experts and a shared one", 384, 8, 6, 2, 64, 1536, 8192, 2048,
     R"("num_local_experts":8,"intermediate_size":512,"attention_chunk_size":256,"floor_scale":512,
        "tie_word_embeddings":true)"},
    {"llama4-scout", "Llama 4 Scout 109B-A17B, its text model, 1 of 16 experts and a shared one", 5120, 48,
     40, 8, 128, 16384, 202048, 10485760,
     R"("intermediate_size":8192,"bos_token_id":200000,"eos_token_id":200001,"pad_token_id":200018,
        "rope_scaling":{"rope_type":"llama3","factor":16,"low_freq_factor":1,"high_freq_factor":1,
        "original_max_position_embeddings":8192})"},
    {"llama4-maverick", "Llama 4 Maverick 402B-A17B, its text model, 1 of 128 experts and a shared one", 5120,
     48, 40, 8, 128, 16384, 202048, 1048576,
     R"("intermediate_size":8192,"num_local_experts":128,"interleave_moe_layer_step":2,"use_qk_norm":false,
        "bos_token_id":200000,"eos_token_id":200001,"pad_token_id":200018)"},
};

}  // namespace

const Family kLlama4{
    .name = "llama4",
    .model_type = "llama4_text",
    .build = build_stack,
    .read = read,
    .write = write,
    .tensors = tensors,
    .ignored = llama_ignores,
    .optional_prefix = "model.",
    .size_keys = {.ffn = "intermediate_size_mlp"},
    .presets = kPresets,
};

}  // namespace strata::models
