// OLMo: LayerNorm without weight and bias. OLMo 2: RMSNorm of each block's output, none of its input, and
// norms of the whole projections of q and k.

#include "base/json.h"
#include "models/decoder.h"
#include "models/families.h"
#include "models/llama_layout.h"

namespace strata::models {
namespace {

ModelConfig read_olmo(const std::string& text, const std::string& where) {
  const ConfigJson json(text, where);
  ModelConfig config = read_llama_keys(json, kOlmo, {.pad_id = 1});
  config.norm = layers::NormSpec::Kind::kPlainLayer;
  config.norm_eps = 1e-5;  // has no key
  config.init = InitScheme::kMitchell;
  config.clip_qkv = json.real_or_none("clip_qkv", 0);
  config.qkv_bias = config.out_bias = json.boolean_or("attention_bias", false);
  return config;
}

std::string write_olmo(const ModelConfig& config, DType dtype) {
  auto json = llama_keys(config, "OlmoForCausalLM", dtype);
  json["attention_bias"] = config.qkv_bias;
  json["clip_qkv"] = config.clip_qkv > 0 ? nlohmann::ordered_json(config.clip_qkv) : nullptr;
  return dump_json(json, 2) + "\n";
}

ModelConfig read_olmo2(const std::string& text, const std::string& where) {
  const ConfigJson json(text, where);
  ModelConfig config = read_llama_keys(json, kOlmo2, {.norm_eps = 1e-5, .pad_id = 1});
  config.norm_placement = layers::NormPlacement::kPostNorm;
  config.init = InitScheme::kTruncatedNormal;
  config.qk_norm = layers::AttentionSpec::QkNorm::kProjection;
  config.qkv_bias = config.out_bias = json.boolean_or("attention_bias", false);
  return config;
}

std::string write_olmo2(const ModelConfig& config, DType dtype) {
  auto json = llama_keys(config, "Olmo2ForCausalLM", dtype);
  json["attention_bias"] = config.qkv_bias;
  return dump_json(json, 2) + "\n";
}

constexpr const char* kOlmo2Ids = R"("rms_norm_eps":1e-6,"rope_theta":5e5,"eos_token_id":100257)";
constexpr const char* kOlmoClipped = R"("clip_qkv":8,"eos_token_id":50279)";
constexpr PresetRow kOlmoPresets[] = {
    {"olmo-1b", "OLMo 1B", 2048, 16, 16, 16, 128, 8192, 50304, 2048,
     R"("tie_word_embeddings":true,"eos_token_id":50279)"},
    {"olmo-7b", "OLMo 7B", 4096, 32, 32, 32, 128, 11008, 50304, 2048, R"("eos_token_id":50279)"},
    {"olmo-1b-0724", "OLMo 1B of July 2024", 2048, 16, 16, 16, 128, 8192, 50304, 4096, kOlmoClipped},
    {"olmo-7b-0424", "OLMo 1.7 7B", 4096, 32, 32, 32, 128, 11008, 50304, 4096, kOlmoClipped},
};
constexpr PresetRow kOlmo2Presets[] = {
    {"olmo2-1b", "OLMo 2 1B", 2048, 16, 16, 16, 128, 8192, 100352, 4096, kOlmo2Ids},
    {"olmo2-7b", "OLMo 2 7B", 4096, 32, 32, 32, 128, 11008, 100352, 4096, kOlmo2Ids},
    {"olmo2-13b", "OLMo 2 13B", 5120, 40, 40, 40, 128, 13824, 100352, 4096, kOlmo2Ids},
    {"olmo2-32b", "OLMo 2 32B", 5120, 64, 40, 8, 128, 27648, 100352, 4096, kOlmo2Ids},
};

}  // namespace

const Family kOlmo{
    .name = "olmo",
    .model_type = "olmo",
    .build = build_stack,
    .read = read_olmo,
    .write = write_olmo,
    .tensors = llama_tensors,
    .ignored = llama_ignores,
    .optional_prefix = "model.",
    .presets = kOlmoPresets,
};
const Family kOlmo2{
    .name = "olmo2",
    .model_type = "olmo2",
    .build = build_stack,
    .read = read_olmo2,
    .write = write_olmo2,
    .tensors = llama_tensors,
    .ignored = llama_ignores,
    .optional_prefix = "model.",
    .presets = kOlmo2Presets,
};

}  // namespace strata::models
