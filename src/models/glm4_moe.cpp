// GLM-4.5: half of a head rotates; after the first layers experts with a shared one, chosen as DeepSeek-V3
// chooses them, by sigmoid scores and a bias.

#include "base/json.h"
#include "models/decoder.h"
#include "models/families.h"
#include "models/llama_layout.h"
#include "models/sigmoid_experts.h"

namespace strata::models {
namespace {

ModelConfig read(const std::string& text, const std::string& where) {
  const ConfigJson json(text, where);
  ModelConfig config = read_llama_keys(json, kGlm4Moe, {.norm_eps = 1e-5, .max_positions = 131072});
  config.partial_rotary_factor = json.partial_rotary_factor(0.5);
  config.qkv_bias = json.boolean_or("attention_bias", false);
  if (json.boolean_or("use_qk_norm", false)) config.qk_norm = layers::AttentionSpec::QkNorm::kHead;
  read_prediction(json, config);
  config.experts = read_sigmoid_experts(
      json, {.count = 128, .per_token = 8, .intermediate_size = 1408, .shared = 1, .dense_layers = 1});
  return config;
}

std::string write(const ModelConfig& config, DType dtype) {
  auto json = llama_keys(config, "Glm4MoeForCausalLM", dtype, {.norm_eps = 1e-5});
  json["attention_bias"] = config.qkv_bias;
  json["partial_rotary_factor"] = config.partial_rotary_factor;
  json["use_qk_norm"] = config.qk_norm == layers::AttentionSpec::QkNorm::kHead;
  write_prediction(json, config);
  write_sigmoid_experts(json, config.experts);
  return dump_json(json, 2) + "\n";
}

std::vector<TensorRow> tensors(const ModelConfig& config) {
  return llama_tensors_with_experts(config, {.shared = "shared_experts"});
}

constexpr PresetRow kPresets[] = {
    {"glm-4.5-air", "GLM-4.5 Air 106B-A12B, 8 of 128 experts and a shared one", 4096, 46, 96, 8, 128, 10944,
     151552, 131072, R"("rope_theta":1e6,"attention_bias":true,"eos_token_id":151329)"},
    {"glm-4.5", "GLM-4.5 355B-A32B, 8 of 160 experts and a shared one", 5120, 92, 96, 8, 128, 12288, 151552,
     131072,
     R"("rope_theta":1e6,"attention_bias":true,"use_qk_norm":true,"n_routed_experts":160,"moe_intermediate_size":1536,"routed_scaling_factor":2.5,"first_k_dense_replace":3,"eos_token_id":151329)"},
};

}  // namespace

const Family kGlm4Moe{
    .name = "glm4-moe",
    .model_type = "glm4_moe",
    .build = build_stack,
    .read = read,
    .write = write,
    .tensors = tensors,
    .ignored = ignores_prediction,
    .optional_prefix = "model.",
    .presets = kPresets,
};

}  // namespace strata::models
