// OLMo Hybrid: in every fourth layer OLMo 2's attention, with norms after blocks and, in the published models, without
// rotation; gated delta nets, with norms before blocks, in the others. Steps reach 2, so that states may change sign.

#include <algorithm>

#include "base/json.h"
#include "models/decoder.h"
#include "models/families.h"
#include "models/hybrid.h"
#include "models/llama_layout.h"

namespace strata::models {
namespace {

ModelConfig read(const std::string& text, const std::string& where) {
  const ConfigJson json(text, where);
  ModelConfig config = read_llama_keys(json, kOlmoHybrid, {.max_positions = 65536, .pad_id = 100277});
  config.eos_id = json.optional_id("eos_token_id", 100257);
  if (!json.rotates()) config.positions = Positions::kAbsent;
  config.norm_placement = layers::NormPlacement::kPostNorm;
  config.other_mixer_norms = layers::NormPlacement::kPreNorm;
  config.qk_norm = layers::AttentionSpec::QkNorm::kProjection;
  config.qkv_bias = config.out_bias = json.boolean_or("attention_bias", false);
  // Without a list every fourth layer has attention, and in models of fewer layers the last one.
  config.layer_kinds = read_kinds(json, config.layers, kLinearNames, std::min<int64_t>(config.layers, 4),
                                  layers::Mixer::kDelta);
  const int64_t key_heads = json.integer_or("linear_num_key_heads", config.heads);
  const int64_t key_dim = json.integer_or("linear_key_head_dim", 3 * config.hidden_size / (4 * key_heads));
  config.delta = layers::DeltaDims{.key_heads = key_heads,
                                   .value_heads = json.integer_or("linear_num_value_heads", config.heads),
                                   .key_dim = key_dim,
                                   .value_dim = json.integer_or("linear_value_head_dim", 2 * key_dim),
                                   .taps = json.integer_or("linear_conv_kernel_dim", 4),
                                   .step_scale = json.boolean_or("linear_allow_neg_eigval", true) ? 2.0 : 1.0,
                                   .norm_eps = 1e-5,
                                   .least_rate = json.real_or("linear_a_log_min", 0),
                                   .most_rate = json.real_or("linear_a_log_max", 16),
                                   .least_step = json.real_or("linear_dt_min", 1e-3),
                                   .most_step = json.real_or("linear_dt_max", 0.1),
                                   .step_floor = json.real_or("linear_dt_init_floor", 1e-4)};
  return config;
}

std::string write(const ModelConfig& config, DType dtype) {
  auto json = llama_keys(config, "OlmoHybridForCausalLM", dtype);
  const layers::DeltaDims& dims = config.delta.value();
  if (config.positions == Positions::kAbsent) {
    json.erase("rope_theta");
    json.erase("rope_scaling");
    json["rope_parameters"] = nullptr;
  }
  json["attention_bias"] = config.qkv_bias;
  json["layer_types"] = kinds_json(config, kLinearNames);
  json["linear_a_log_max"] = dims.most_rate;
  json["linear_a_log_min"] = dims.least_rate;
  json["linear_allow_neg_eigval"] = dims.step_scale == 2;
  json["linear_conv_kernel_dim"] = dims.taps;
  json["linear_dt_init_floor"] = dims.step_floor;
  json["linear_dt_max"] = dims.most_step;
  json["linear_dt_min"] = dims.least_step;
  json["linear_key_head_dim"] = dims.key_dim;
  json["linear_num_key_heads"] = dims.key_heads;
  json["linear_num_value_heads"] = dims.value_heads;
  json["linear_value_head_dim"] = dims.value_dim;
  return dump_json(json, 2) + "\n";
}

std::vector<TensorRow> tensors(const ModelConfig& config) {
  return hybrid_tensors(config, {.stored = DeltaNames::Stored::kSeparate,
                                 .norm = "o_norm",
                                 .out = "o_proj",
                                 .before_mixer = "attention_layer_norm",
                                 .before_ffn = "feedforward_layer_norm"});
}

// transformers has other names for norms than published files: for those of delta nets the usual ones, and in its own
// files one name for the norm after attention and the norm before a feed-forward block.
constexpr Family::OldEnding kOtherNames[] = {
    {".attention_layer_norm.weight", ".input_layernorm.weight"},
    {".feedforward_layer_norm.weight", ".post_attention_layernorm.weight"},
    {".post_attention_layernorm.weight", ".feedforward_layer_norm.weight"},
};

constexpr PresetRow kPresets[] = {
    {"olmo-hybrid-7b", "OLMo Hybrid 7B", 3840, 32, 30, 30, 128, 11008, 100352, 65536,
     R"("rope_parameters":null)"},
};

}  // namespace

const Family kOlmoHybrid{
    .name = "olmo-hybrid",
    .model_type = "olmo_hybrid",
    .build = build_stack,
    .read = read,
    .write = write,
    .tensors = tensors,
    .ignored = llama_ignores,
    .optional_prefix = "model.",
    .old_endings = kOtherNames,
    .size_keys = {.head_dim = nullptr},
    .presets = kPresets,
};

}  // namespace strata::models
