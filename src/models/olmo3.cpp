// OLMo 3: OLMo 2 with windows in three of four layers, and scaled rotation only in the others.

#include "base/json.h"
#include "models/decoder.h"
#include "models/families.h"
#include "models/llama_layout.h"

namespace strata::models {
namespace {

constexpr LlamaDefaults kDefaults{.norm_eps = 1e-5, .rope_theta = 500000, .pad_id = 1};

bool is_unscaled(const ops::RopeScaling& rope) {
  return rope.kind == ops::RopeScaling::Kind::kUnscaled;
}

ModelConfig read(const std::string& text, const std::string& where) {
  const ConfigJson json(text, where);
  ModelConfig config = read_llama_keys(json, kOlmo3, kDefaults);
  config.norm_placement = layers::NormPlacement::kPostNorm;
  config.init = InitScheme::kTruncatedNormal;
  config.qk_norm = layers::AttentionSpec::QkNorm::kProjection;
  config.qkv_bias = config.out_bias = json.boolean_or("attention_bias", false);
  config.sliding_window = {.size = static_cast<int64_t>(json.real_or_none("sliding_window", 4096)),
                           .period = 4};
  json.read_layer_types(config.layers, config.sliding_window);
  config.rope = json.rope(config.max_positions, kDefaults.rope_theta, "full_attention");
  // rope_theta and rope_scaling of older files are of layers without a window.
  ops::RopeScaling windows{.theta = kDefaults.rope_theta};
  if (json.has("rope_parameters"))
    windows = json.rope(config.max_positions, kDefaults.rope_theta, "sliding_attention", "");
  const bool same = is_unscaled(config.rope) && is_unscaled(windows) && windows.theta == config.rope.theta;
  if (!same) config.window_rope = std::move(windows);
  return config;
}

std::string write(const ModelConfig& config, DType dtype) {
  auto json = llama_keys(config, "Olmo3ForCausalLM", dtype, kDefaults);
  json["attention_bias"] = config.qkv_bias;
  json["sliding_window"] = config.sliding_window.size > 0 ? nlohmann::ordered_json(config.sliding_window.size)
                                                          : nlohmann::ordered_json();
  json["layer_types"] = layer_types_json(config);
  const auto& windows = config.window_rope;
  if (windows && !(is_unscaled(*windows) && windows->theta == kDefaults.rope_theta))
    write_rope_of_windows(json, config.rope, *windows);
  return dump_json(json, 2) + "\n";
}

constexpr const char* kKeys =
    R"("rms_norm_eps":1e-6,"rope_theta":5e5,"eos_token_id":100257,"pad_token_id":100277,
       "rope_scaling":{"rope_type":"yarn","factor":8,"beta_fast":32,"beta_slow":1,
                       "original_max_position_embeddings":8192})";
constexpr PresetRow kPresets[] = {
    {"olmo3-7b", "OLMo 3 7B", 4096, 32, 32, 32, 128, 11008, 100278, 65536, kKeys},
    {"olmo3-32b", "OLMo 3 32B", 5120, 64, 40, 8, 128, 27648, 100278, 65536, kKeys},
};

}  // namespace

const Family kOlmo3{
    .name = "olmo3",
    .model_type = "olmo3",
    .build = build_stack,
    .read = read,
    .write = write,
    .tensors = llama_tensors,
    .ignored = llama_ignores,
    .optional_prefix = "model.",
    .presets = kPresets,
};

}  // namespace strata::models
