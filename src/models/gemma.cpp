// Gemma 2 and the text model of Gemma 3: norms before and after each block that multiply by 1 + w, embeddings
// scaled by √d, a gated GELU, windows in most layers. Gemma 2 caps scores and logits; Gemma 3 has norms of q
// and k instead, and its window layers have a separate rotary base.

#include "base/json.h"
#include "models/decoder.h"
#include "models/families.h"
#include "models/llama_layout.h"

namespace strata::models {
namespace {

constexpr LlamaDefaults kDefaults{.tied = true,
                                  .max_positions = 8192,
                                  .activation_key = "hidden_activation",
                                  .activation = "gelu_pytorch_tanh",
                                  .pad_id = 0};

ModelConfig read_gemma(const ConfigJson& json, const Family& family, LlamaDefaults defaults) {
  ModelConfig config = read_llama_keys(json, family, defaults);
  config.head_dim = json.integer_or("head_dim", 256);
  config.norm_placement = layers::NormPlacement::kSandwich;
  config.norm_weight_offset = 1;
  config.scaled_embedding = true;
  config.qkv_bias = config.out_bias = json.boolean_or("attention_bias", false);
  config.attention_scalar = json.real_or("query_pre_attn_scalar", 256);
  config.sliding_window.size = static_cast<int64_t>(json.real_or_none("sliding_window", 4096));
  return config;
}

nlohmann::ordered_json gemma_keys(const ModelConfig& config, const char* architecture, DType dtype) {
  auto json = llama_keys(config, architecture, dtype, kDefaults);
  json["hidden_act"] = json["hidden_activation"];
  json["attention_bias"] = config.qkv_bias;
  // transformers accepts only an integer if the value is integral.
  const auto whole = static_cast<int64_t>(config.attention_scalar);
  json["query_pre_attn_scalar"] = static_cast<double>(whole) == config.attention_scalar
                                      ? nlohmann::ordered_json(whole)
                                      : nlohmann::ordered_json(config.attention_scalar);
  json["sliding_window"] = config.sliding_window.size;
  json["layer_types"] = layer_types_json(config);
  const auto cap = [](double value) {
    return value > 0 ? nlohmann::ordered_json(value) : nlohmann::ordered_json();
  };
  json["attn_logit_softcapping"] = cap(config.attention_softcap);
  json["final_logit_softcapping"] = cap(config.logits_softcap);
  return json;
}

ModelConfig read_gemma2(const std::string& text, const std::string& where) {
  const ConfigJson json(text, where);
  json.require_equal("use_bidirectional_attention", false);
  ModelConfig config = read_gemma(json, kGemma2, kDefaults);
  config.attention_softcap = json.real_or_none("attn_logit_softcapping", 50);
  config.logits_softcap = json.real_or_none("final_logit_softcapping", 30);
  config.sliding_window.period = 2;
  json.read_layer_types(config.layers, config.sliding_window);
  return config;
}

std::string write_gemma2(const ModelConfig& config, DType dtype) {
  return dump_json(gemma_keys(config, "Gemma2ForCausalLM", dtype), 2) + "\n";
}

ModelConfig read_gemma3(const std::string& text, const std::string& where) {
  const ConfigJson json(text, where);
  json.require_equal("use_bidirectional_attention", false);
  LlamaDefaults defaults = kDefaults;
  defaults.max_positions = 131072;
  defaults.rope_theta = 1e6;
  ModelConfig config = read_gemma(json, kGemma3, defaults);
  // attn_logit_softcapping is a key that Gemma 3 does not use.
  config.logits_softcap = json.real_or_none("final_logit_softcapping", 0);
  config.qk_norm = layers::AttentionSpec::QkNorm::kHead;
  config.rope = json.rope(config.max_positions, 1e6, "full_attention");
  // rope_parameters holds both; older files have the windows' base separately, and scale only the other.
  constexpr const char* kBase = "rope_local_base_freq";
  ops::RopeScaling local;
  local.theta = json.real_or(kBase, 10000);
  config.window_rope = json.has("rope_parameters")
                           ? json.rope(config.max_positions, 10000, "sliding_attention", kBase)
                           : local;
  config.sliding_window.period = static_cast<int64_t>(json.real_or("sliding_window_pattern", 6));
  json.read_layer_types(config.layers, config.sliding_window);
  return config;
}

std::string write_gemma3(const ModelConfig& config, DType dtype) {
  auto json = gemma_keys(config, "Gemma3ForCausalLM", dtype);
  if (config.window_rope->kind == ops::RopeScaling::Kind::kUnscaled) {
    json["rope_local_base_freq"] = config.window_rope->theta;
  } else {
    // The older keys cannot express scaled rotation of windows.
    write_rope_of_windows(json, config.rope, *config.window_rope);
  }
  json["sliding_window_pattern"] = config.sliding_window.period;
  return dump_json(json, 2) + "\n";
}

constexpr const char* kGemma2Ids = R"("bos_token_id":2,"eos_token_id":1,"query_pre_attn_scalar":256)";
constexpr PresetRow kGemma2Presets[] = {
    {"gemma2-2b", "Gemma 2 2B", 2304, 26, 8, 4, 256, 9216, 256000, 8192, kGemma2Ids},
    {"gemma2-9b", "Gemma 2 9B", 3584, 42, 16, 8, 256, 14336, 256000, 8192, kGemma2Ids},
    {"gemma2-27b", "Gemma 2 27B", 4608, 46, 32, 16, 128, 36864, 256000, 8192,
     R"("bos_token_id":2,"eos_token_id":1,"query_pre_attn_scalar":144)"},
};
constexpr const char* kGemma3Small =
    R"("bos_token_id":2,"eos_token_id":1,"query_pre_attn_scalar":256,"sliding_window":512)";
constexpr const char* kGemma3Large =
    R"("bos_token_id":2,"eos_token_id":1,"query_pre_attn_scalar":256,"sliding_window":1024,
       "rope_scaling":{"rope_type":"linear","factor":8})";
constexpr PresetRow kGemma3Presets[] = {
    {"gemma3-270m", "Gemma 3 270M", 640, 18, 4, 1, 256, 2048, 262144, 32768, kGemma3Small},
    {"gemma3-1b", "Gemma 3 1B", 1152, 26, 4, 1, 256, 6912, 262144, 32768, kGemma3Small},
    {"gemma3-4b", "Gemma 3 4B, its text model", 2560, 34, 8, 4, 256, 10240, 262208, 131072, kGemma3Large},
    {"gemma3-12b", "Gemma 3 12B, its text model", 3840, 48, 16, 8, 256, 15360, 262208, 131072, kGemma3Large},
    {"gemma3-27b", "Gemma 3 27B, its text model", 5376, 62, 32, 16, 128, 21504, 262208, 131072,
     R"("bos_token_id":2,"eos_token_id":1,"query_pre_attn_scalar":168,"sliding_window":1024,
        "rope_scaling":{"rope_type":"linear","factor":8})"},
};

}  // namespace

const Family kGemma2{
    .name = "gemma2",
    .model_type = "gemma2",
    .build = build_stack,
    .read = read_gemma2,
    .write = write_gemma2,
    .tensors = llama_tensors,
    .ignored = llama_ignores,
    .optional_prefix = "model.",
    .presets = kGemma2Presets,
};
const Family kGemma3{
    .name = "gemma3",
    .model_type = "gemma3_text",
    .build = build_stack,
    .read = read_gemma3,
    .write = write_gemma3,
    .tensors = llama_tensors,
    .ignored = llama_ignores,
    .optional_prefix = "model.",
    .presets = kGemma3Presets,
};

}  // namespace strata::models
