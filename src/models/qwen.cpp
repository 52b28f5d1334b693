// Qwen2 and 2.5: Llama with biases of q, k and v. Qwen3 (dense): none of these, but norms of q and k by head,
// and a separate head size.

#include "base/json.h"
#include "models/decoder.h"
#include "models/families.h"
#include "models/llama_layout.h"

namespace strata::models {
namespace {

// use_sliding_window sets a window for the layers from max_window_layers on.
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
  return dump_json(json, 2) + "\n";
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
  return dump_json(json, 2) + "\n";
}

constexpr const char* kQwenTied =
    R"("rope_theta":1e6,"tie_word_embeddings":true,"bos_token_id":151643,"eos_token_id":151643)";
constexpr const char* kQwenUntied = R"("rope_theta":1e6,"bos_token_id":151643,"eos_token_id":151643)";
constexpr const char* kQwenLarge =
    R"("rope_theta":1e6,"rms_norm_eps":1e-5,"bos_token_id":151643,"eos_token_id":151643)";
constexpr PresetRow kQwen2Presets[] = {
    {"qwen2-0.5b", "Qwen2 0.5B", 896, 24, 14, 2, 64, 4864, 151936, 131072, kQwenTied},
    {"qwen2-1.5b", "Qwen2 1.5B", 1536, 28, 12, 2, 128, 8960, 151936, 131072, kQwenTied},
    {"qwen2-7b", "Qwen2 7B", 3584, 28, 28, 4, 128, 18944, 152064, 131072, kQwenUntied},
    {"qwen2-72b", "Qwen2 72B", 8192, 80, 64, 8, 128, 29568, 152064, 131072, kQwenLarge},
    {"qwen2.5-0.5b", "Qwen2.5 0.5B", 896, 24, 14, 2, 64, 4864, 151936, 32768, kQwenTied},
    {"qwen2.5-1.5b", "Qwen2.5 1.5B", 1536, 28, 12, 2, 128, 8960, 151936, 131072, kQwenTied},
    {"qwen2.5-3b", "Qwen2.5 3B", 2048, 36, 16, 2, 128, 11008, 151936, 32768, kQwenTied},
    {"qwen2.5-7b", "Qwen2.5 7B", 3584, 28, 28, 4, 128, 18944, 152064, 131072, kQwenUntied},
    {"qwen2.5-14b", "Qwen2.5 14B", 5120, 48, 40, 8, 128, 13824, 152064, 131072, kQwenLarge},
    {"qwen2.5-32b", "Qwen2.5 32B", 5120, 64, 40, 8, 128, 27648, 152064, 131072, kQwenLarge},
    {"qwen2.5-72b", "Qwen2.5 72B", 8192, 80, 64, 8, 128, 29568, 152064, 131072, kQwenLarge},
};

constexpr PresetRow kQwen3Presets[] = {
    {"qwen3-0.6b", "Qwen3 0.6B", 1024, 28, 16, 8, 128, 3072, 151936, 40960, kQwenTied},
    {"qwen3-1.7b", "Qwen3 1.7B", 2048, 28, 16, 8, 128, 6144, 151936, 40960, kQwenTied},
    {"qwen3-4b", "Qwen3 4B", 2560, 36, 32, 8, 128, 9728, 151936, 40960, kQwenTied},
    {"qwen3-8b", "Qwen3 8B", 4096, 36, 32, 8, 128, 12288, 151936, 40960, kQwenUntied},
    {"qwen3-14b", "Qwen3 14B", 5120, 40, 40, 8, 128, 17408, 151936, 40960, kQwenUntied},
    {"qwen3-32b", "Qwen3 32B", 5120, 64, 64, 8, 128, 25600, 151936, 40960, kQwenUntied},
};

}  // namespace

const Family kQwen2{
    .name = "qwen2",
    .model_type = "qwen2",
    .build = build_stack,
    .read = read_qwen2,
    .write = write_qwen2,
    .tensors = llama_tensors,
    .ignored = llama_ignores,
    .optional_prefix = "model.",
    .presets = kQwen2Presets,
};
const Family kQwen3{
    .name = "qwen3",
    .model_type = "qwen3",
    .build = build_stack,
    .read = read_qwen3,
    .write = write_qwen3,
    .tensors = llama_tensors,
    .ignored = llama_ignores,
    .optional_prefix = "model.",
    .presets = kQwen3Presets,
};

}  // namespace strata::models
