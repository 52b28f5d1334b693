// Qwen2 and 2.5: Llama with biases of q, k and v. Qwen3 (dense): none of these, but norms of q and k by head,
// and a head size of its own.
#include <nlohmann/json.hpp>

#include "models/decoder.h"
#include "models/families.h"
#include "models/llama_layout.h"

namespace strata::models {
namespace {

// use_sliding_window gives the layers from max_window_layers on a window.
void read_sliding_window(const ConfigJson& json, ModelConfig& config) {
  if (json.boolean_or("use_sliding_window", false)) {
    config.sliding_window.size = static_cast<int64_t>(json.real_or_none("sliding_window", 4096));
    config.sliding_window.first = static_cast<int64_t>(json.real_or("max_window_layers", 28));
  }
  json.read_layer_types(config.layers, config.sliding_window);
}

void write_sliding_window(nlohmann::ordered_json& json, const ModelConfig& config) {
  const bool windows = config.sliding_window.size > 0;
  json["use_sliding_window"] = windows;
  json["sliding_window"] = windows ? nlohmann::ordered_json(config.sliding_window.size) : nullptr;
  json["max_window_layers"] = windows ? config.sliding_window.first : config.layers;
  if (windows) json["layer_types"] = layer_types_json(config);
}

ModelConfig read_qwen2(const std::string& text, const std::string& where) {
  const ConfigJson json(text, where);
  ModelConfig config = read_llama_keys(json, kQwen2, {.max_positions = 32768});
  config.qkv_bias = true;
  read_sliding_window(json, config);
  return config;
}

std::string write_qwen2(const ModelConfig& config, DType dtype) {
  auto json = llama_keys(config, "Qwen2ForCausalLM", dtype);
  write_sliding_window(json, config);
  return json.dump(2) + "\n";
}

ModelConfig read_qwen3(const std::string& text, const std::string& where) {
  const ConfigJson json(text, where);
  ModelConfig config = read_llama_keys(json, kQwen3, {.max_positions = 32768});
  config.head_dim = json.integer_or("head_dim", 128);
  config.qk_norm = layers::AttentionSpec::QkNorm::kHead;
  config.qkv_bias = config.out_bias = json.boolean_or("attention_bias", false);
  read_sliding_window(json, config);
  return config;
}

std::string write_qwen3(const ModelConfig& config, DType dtype) {
  auto json = llama_keys(config, "Qwen3ForCausalLM", dtype);
  json["attention_bias"] = config.qkv_bias;
  write_sliding_window(json, config);
  return json.dump(2) + "\n";
}

}  // namespace

const Family kQwen2{"qwen2",     "qwen2",       build_stack,   read_qwen2,
                    write_qwen2, llama_tensors, llama_ignores, "model."};
const Family kQwen3{"qwen3",     "qwen3",       build_stack,   read_qwen3,
                    write_qwen3, llama_tensors, llama_ignores, "model."};

}  // namespace strata::models
