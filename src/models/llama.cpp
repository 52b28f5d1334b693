// Llama 1 to 3.3 and SmolLM: RMSNorm, rotary embedding, grouped-query attention, SwiGLU.
#include <nlohmann/json.hpp>

#include "models/decoder.h"
#include "models/families.h"
#include "models/llama_layout.h"

namespace strata::models {
namespace {

ModelConfig read(const std::string& text, const std::string& where) {
  const ConfigJson json(text, where);
  json.require_equal("pretraining_tp", 1);
  ModelConfig config = read_llama_keys(json, kLlama);
  read_llama_biases(json, config);
  config.init = InitScheme::kScaledResidual;
  return config;
}

std::string write(const ModelConfig& config, DType dtype) {
  auto json = llama_keys(config, "LlamaForCausalLM", dtype);
  json["attention_bias"] = config.qkv_bias;
  json["mlp_bias"] = config.ffn_bias;
  json["pretraining_tp"] = 1;
  return json.dump(2) + "\n";
}

}  // namespace

const Family kLlama{"llama3", "llama", build_stack, read, write, llama_tensors, llama_ignores, "model."};

}  // namespace strata::models
