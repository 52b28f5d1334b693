// SmolLM3: Llama without positions in every fourth layer.

#include "base/error.h"
#include "base/json.h"
#include "models/decoder.h"
#include "models/families.h"
#include "models/llama_layout.h"

namespace strata::models {
namespace {

constexpr LlamaDefaults kDefaults{.tied = true, .max_positions = 32768, .rope_theta = 2e6, .pad_id = 128004};

void read_unrotated(const ConfigJson& json, const std::string& where, ModelConfig& config) {
  config.unrotated.period = json.integer_or("no_rope_layer_interval", 4);
  const auto rotates = json.integers("no_rope_layers");
  if (rotates.empty()) return;
  if (static_cast<int64_t>(rotates.size()) != config.layers) {
    throw DataError("[{}] \"no_rope_layers\" has {} entries: expected one for each of {} layers", where,
                    rotates.size(), config.layers);
  }
  std::vector<bool> unrotated;
  for (const int64_t rotated : rotates) unrotated.push_back(rotated == 0);
  for (int64_t i = 0; i < config.layers; ++i) {
    if (config.unrotated.at(i) == unrotated[static_cast<size_t>(i)]) continue;
    config.unrotated.layers = std::move(unrotated);
    return;
  }
}

// Without layer_types, the layers without positions have the windows, if there are any.
void read_windows(const ConfigJson& json, ModelConfig& config) {
  SlidingWindow& window = config.sliding_window;
  if (json.boolean_or("use_sliding_window", false))
    window.size = static_cast<int64_t>(json.real_or_none("sliding_window", 0));
  for (int64_t i = 0; window.size > 0 && i < config.layers; ++i)
    window.layers.push_back(config.unrotated.at(i));
  json.read_layer_types(config.layers, window);
}

ModelConfig read(const std::string& text, const std::string& where) {
  const ConfigJson json(text, where);
  ModelConfig config = read_llama_keys(json, kSmolLm3, kDefaults);
  read_llama_biases(json, config);
  read_unrotated(json, where, config);
  read_windows(json, config);
  return config;
}

std::string write(const ModelConfig& config, DType dtype) {
  auto json = llama_keys(config, "SmolLM3ForCausalLM", dtype, kDefaults);
  json["attention_bias"] = config.qkv_bias;
  json["layer_types"] = layer_types_json(config);
  json["mlp_bias"] = config.ffn_bias;
  json["no_rope_layer_interval"] = config.unrotated.period;
  auto rotates = nlohmann::ordered_json::array();
  for (int64_t i = 0; i < config.layers; ++i) rotates.push_back(config.unrotated.at(i) ? 0 : 1);
  json["no_rope_layers"] = rotates;
  const bool windows = config.sliding_window.size > 0;
  json["sliding_window"] = windows ? nlohmann::ordered_json(config.sliding_window.size) : nullptr;
  json["use_sliding_window"] = windows;
  return dump_json(json, 2) + "\n";
}

constexpr PresetRow kPresets[] = {
    {"smollm3-3b", "SmolLM3 3B", 2048, 36, 16, 4, 128, 11008, 128256, 65536,
     R"("rope_theta":5e6,"tie_word_embeddings":true,"bos_token_id":128000,"eos_token_id":128012,
        "pad_token_id":128004)"},
};

}  // namespace

const Family kSmolLm3{
    .name = "smollm3",
    .model_type = "smollm3",
    .build = build_stack,
    .read = read,
    .write = write,
    .tensors = llama_tensors,
    .ignored = llama_ignores,
    .optional_prefix = "model.",
    .presets = kPresets,
};

}  // namespace strata::models
