// OLMo: LayerNorm without weight and bias. OLMo 2: RMSNorm of each block's output, none of its input, and
// norms of the whole projections of q and k.
#include <nlohmann/json.hpp>

#include "models/decoder.h"
#include "models/families.h"
#include "models/llama_layout.h"

namespace strata::models {
namespace {

ModelConfig read_olmo(const std::string& text, const std::string& where) {
  const ConfigJson json(text, where);
  ModelConfig config = read_llama_keys(json, kOlmo, {.pad_id = 1});
  config.norm = layers::NormSpec::Kind::kPlainLayer;
  config.norm_eps = 1e-5;  // no key says it
  config.init = InitScheme::kMitchell;
  config.clip_qkv = json.real_or_none("clip_qkv", 0);
  config.qkv_bias = config.out_bias = json.boolean_or("attention_bias", false);
  return config;
}

std::string write_olmo(const ModelConfig& config, DType dtype) {
  auto json = llama_keys(config, "OlmoForCausalLM", dtype);
  json["attention_bias"] = config.qkv_bias;
  json["clip_qkv"] = config.clip_qkv > 0 ? nlohmann::ordered_json(config.clip_qkv) : nullptr;
  return json.dump(2) + "\n";
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
  return json.dump(2) + "\n";
}

}  // namespace

const Family kOlmo{"olmo",     "olmo",        build_stack,   read_olmo,
                   write_olmo, llama_tensors, llama_ignores, "model."};
const Family kOlmo2{"olmo2",     "olmo2",       build_stack,   read_olmo2,
                    write_olmo2, llama_tensors, llama_ignores, "model."};

}  // namespace strata::models
