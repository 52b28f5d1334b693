// OLMoE: a pre-norm decoder with norms of the whole projections of q and k, and experts in every layer.

#include "base/json.h"
#include "models/decoder.h"
#include "models/families.h"
#include "models/llama_layout.h"

namespace strata::models {
namespace {

ModelConfig read(const std::string& text, const std::string& where) {
  const ConfigJson json(text, where);
  ModelConfig config = read_llama_keys(json, kOlmoe, {.norm_eps = 1e-5, .max_positions = 4096, .pad_id = 1});
  config.qk_norm = layers::AttentionSpec::QkNorm::kProjection;
  config.clip_qkv = json.real_or_none("clip_qkv", 0);
  config.qkv_bias = config.out_bias = json.boolean_or("attention_bias", false);
  config.experts = {.count = json.integer_or("num_experts", json.integer_or("num_local_experts", 64)),
                    .intermediate_size = config.intermediate_size,
                    .route = {.k = json.integer_or("num_experts_per_tok", 8),
                              .normalize = json.boolean_or("norm_topk_prob", false)},
                    .balance_coefficient = json.real_or("router_aux_loss_coef", 0.01)};
  return config;
}

std::string write(const ModelConfig& config, DType dtype) {
  auto json = llama_keys(config, "OlmoeForCausalLM", dtype);
  json["attention_bias"] = config.qkv_bias;
  json["clip_qkv"] = config.clip_qkv > 0 ? nlohmann::ordered_json(config.clip_qkv) : nullptr;
  json["norm_topk_prob"] = config.experts.route.normalize;
  json["num_experts"] = config.experts.count;
  json["num_experts_per_tok"] = config.experts.route.k;
  json["output_router_logits"] = false;
  json["router_aux_loss_coef"] = config.experts.balance_coefficient;
  return dump_json(json, 2) + "\n";
}

std::vector<TensorRow> tensors(const ModelConfig& config) {
  return llama_tensors_with_experts(config);
}

constexpr PresetRow kPresets[] = {
    {"olmoe-1b-7b", "OLMoE 7B, of which 1B active, 8 of 64 experts", 2048, 16, 16, 16, 128, 1024, 50304, 4096,
     R"("eos_token_id":50279)"},
};

}  // namespace

const Family kOlmoe{
    .name = "olmoe",
    .model_type = "olmoe",
    .build = build_stack,
    .read = read,
    .write = write,
    .tensors = tensors,
    .ignored = llama_ignores,
    .optional_prefix = "model.",
    .size_keys = {.head_dim = nullptr},
    .presets = kPresets,
};

}  // namespace strata::models
