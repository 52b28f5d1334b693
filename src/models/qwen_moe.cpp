// Qwen2-MoE: Qwen2 with experts and a shared one, which a gate weighs. Qwen3-MoE: Qwen3 with experts, none of
// them shared.

#include "base/json.h"
#include "models/decoder.h"
#include "models/families.h"
#include "models/llama_layout.h"

namespace strata::models {
namespace {

struct Defaults {
  int64_t count, per_token, intermediate_size, shared_size;
};

Experts read_experts(const ConfigJson& json, const Defaults& defaults) {
  json.require_equal("use_sliding_window", false);
  return {.count = json.integer_or("num_experts", json.integer_or("num_local_experts", defaults.count)),
          .intermediate_size = json.integer_or("moe_intermediate_size", defaults.intermediate_size),
          .route = {.k = json.integer_or("num_experts_per_tok", defaults.per_token),
                    .normalize = json.boolean_or("norm_topk_prob", false)},
          .shared_size = defaults.shared_size == 0
                             ? 0
                             : json.integer_or("shared_expert_intermediate_size", defaults.shared_size),
          .shared_gate = defaults.shared_size != 0,
          .period = json.integer_or("decoder_sparse_step", 1),
          .dense = json.integers("mlp_only_layers"),
          .balance_coefficient = json.real_or("router_aux_loss_coef", 0.001)};
}

void write_experts(nlohmann::ordered_json& json, const Experts& experts) {
  json["use_sliding_window"] = false;
  json["sliding_window"] = nullptr;
  json["decoder_sparse_step"] = std::max<int64_t>(experts.period, 1);
  json["mlp_only_layers"] = experts.dense;
  json["moe_intermediate_size"] = experts.intermediate_size;
  if (experts.shared_size > 0) json["shared_expert_intermediate_size"] = experts.shared_size;
  json["norm_topk_prob"] = experts.route.normalize;
  json["num_experts"] = experts.count;
  json["num_experts_per_tok"] = experts.route.k;
  json["output_router_logits"] = false;
  json["router_aux_loss_coef"] = experts.balance_coefficient;
}

ModelConfig read_qwen2(const std::string& text, const std::string& where) {
  const ConfigJson json(text, where);
  ModelConfig config = read_llama_keys(json, kQwen2Moe, {.max_positions = 32768});
  config.qkv_bias = json.boolean_or("qkv_bias", true);
  config.experts = read_experts(json, {60, 4, 1408, 5632});
  return config;
}

std::string write_qwen2(const ModelConfig& config, DType dtype) {
  auto json = llama_keys(config, "Qwen2MoeForCausalLM", dtype);
  json["qkv_bias"] = config.qkv_bias;
  write_experts(json, config.experts);
  return dump_json(json, 2) + "\n";
}

ModelConfig read_qwen3(const std::string& text, const std::string& where) {
  const ConfigJson json(text, where);
  ModelConfig config = read_llama_keys(json, kQwen3Moe, {.max_positions = 32768});
  config.qk_norm = layers::AttentionSpec::QkNorm::kHead;
  config.qkv_bias = config.out_bias = json.boolean_or("attention_bias", false);
  config.experts = read_experts(json, {128, 8, 768, 0});
  return config;
}

std::string write_qwen3(const ModelConfig& config, DType dtype) {
  auto json = llama_keys(config, "Qwen3MoeForCausalLM", dtype);
  json["attention_bias"] = config.qkv_bias;
  write_experts(json, config.experts);
  return dump_json(json, 2) + "\n";
}

std::vector<TensorRow> tensors(const ModelConfig& config) {
  return llama_tensors_with_experts(config);
}

constexpr PresetRow kQwen2Presets[] = {
    {"qwen1.5-moe-a2.7b", "Qwen1.5-MoE, 4 of 60 experts and a shared one", 2048, 24, 16, 16, 128, 5632,
     151936, 8192, R"("rope_theta":1e6,"bos_token_id":151643,"eos_token_id":151643)"},
    {"qwen2-57b-a14b", "Qwen2 57B-A14B, 8 of 64 experts and a shared one", 3584, 28, 28, 4, 128, 18944,
     151936, 131072,
     R"("rope_theta":1e6,"num_experts":64,"num_experts_per_tok":8,"moe_intermediate_size":2560,"shared_expert_intermediate_size":20480,"bos_token_id":151643,"eos_token_id":151643)"},
};
constexpr const char* kQwen3Keys =
    R"("rope_theta":1e6,"norm_topk_prob":true,"bos_token_id":151643,"eos_token_id":151643)";
constexpr PresetRow kQwen3Presets[] = {
    {"moe-30m-a10m", "small, 8 of 32 experts", 256, 8, 4, 2, 64, 768, 8192, 1024,
     R"("num_experts":32,"num_experts_per_tok":8,"moe_intermediate_size":128,"norm_topk_prob":true,"tie_word_embeddings":true)"},
    {"moe-162m-a28m", "small, 8 of 64 experts", 512, 8, 8, 2, 64, 1536, 8192, 2048,
     R"("num_experts":64,"num_experts_per_tok":8,"moe_intermediate_size":192,"norm_topk_prob":true,"tie_word_embeddings":true)"},
    {"qwen3-30b-a3b", "Qwen3 30B-A3B, 8 of 128 experts", 2048, 48, 32, 4, 128, 6144, 151936, 40960,
     kQwen3Keys},
    {"qwen3-235b-a22b", "Qwen3 235B-A22B, 8 of 128 experts", 4096, 94, 64, 4, 128, 12288, 151936, 40960,
     R"("rope_theta":1e6,"norm_topk_prob":true,"moe_intermediate_size":1536,"bos_token_id":151643,"eos_token_id":151643)"},
};

}  // namespace

const Family kQwen2Moe{
    .name = "qwen2-moe",
    .model_type = "qwen2_moe",
    .build = build_stack,
    .read = read_qwen2,
    .write = write_qwen2,
    .tensors = tensors,
    .ignored = llama_ignores,
    .optional_prefix = "model.",
    .size_keys = {.head_dim = nullptr},
    .presets = kQwen2Presets,
};
const Family kQwen3Moe{
    .name = "qwen3-moe",
    .model_type = "qwen3_moe",
    .build = build_stack,
    .read = read_qwen3,
    .write = write_qwen3,
    .tensors = tensors,
    .ignored = llama_ignores,
    .optional_prefix = "model.",
    .presets = kQwen3Presets,
};

}  // namespace strata::models
