// StableLM and StableLM 2: Llama with LayerNorm, a part of each head that rotates, and biases of q, k and v.

#include "base/json.h"
#include "models/decoder.h"
#include "models/families.h"
#include "models/llama_layout.h"

namespace strata::models {
namespace {

constexpr LlamaDefaults kDefaults{.norm_eps_key = "layer_norm_eps", .norm_eps = 1e-5, .max_positions = 4096};

ModelConfig read(const std::string& text, const std::string& where) {
  const ConfigJson json(text, where);
  // The 12B model has both: norms with a weight for each head, and attention and FFN after one norm.
  for (const char* key : {"qk_layernorm", "use_parallel_residual"}) json.require_equal(key, false);
  ModelConfig config = read_llama_keys(json, kStableLm, kDefaults);
  config.norm = layers::NormSpec::Kind::kLayer;
  config.qkv_bias = json.boolean_or("use_qkv_bias", false);
  config.partial_rotary_factor = json.partial_rotary_factor(0.25);
  return config;
}

std::string write(const ModelConfig& config, DType dtype) {
  auto json = llama_keys(config, "StableLmForCausalLM", dtype, kDefaults);
  json["hidden_dropout"] = 0.0;
  json["partial_rotary_factor"] = config.partial_rotary_factor;
  json["qk_layernorm"] = false;
  json["use_parallel_residual"] = false;
  json["use_qkv_bias"] = config.qkv_bias;
  return dump_json(json, 2) + "\n";
}

constexpr PresetRow kPresets[] = {
    {"stablelm-3b", "StableLM 3B 4E1T", 2560, 32, 32, 32, 80, 6912, 50304, 4096,
     R"("bos_token_id":0,"eos_token_id":0)"},
    {"stablelm2-1.6b", "StableLM 2 1.6B", 2048, 24, 32, 32, 64, 5632, 100352, 4096,
     R"("use_qkv_bias":true,"bos_token_id":100257,"eos_token_id":100257)"},
};

}  // namespace

const Family kStableLm{
    .name = "stablelm",
    .model_type = "stablelm",
    .build = build_stack,
    .read = read,
    .write = write,
    .tensors = llama_tensors,
    .ignored = llama_ignores,
    .optional_prefix = "model.",
    .size_keys = {.head_dim = nullptr},
    .presets = kPresets,
};

}  // namespace strata::models
