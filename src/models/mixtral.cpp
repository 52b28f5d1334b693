// Mixtral: Mistral with experts in every layer; a token's two weights add up to 1.

#include "base/json.h"
#include "models/decoder.h"
#include "models/families.h"
#include "models/llama_layout.h"

namespace strata::models {
namespace {

ModelConfig read(const std::string& text, const std::string& where) {
  const ConfigJson json(text, where);
  ModelConfig config =
      read_llama_keys(json, kMixtral, {.norm_eps = 1e-5, .max_positions = 131072, .rope_theta = 1e6});
  config.sliding_window.size = static_cast<int64_t>(json.real_or_none("sliding_window", 0));
  config.experts = {.count = json.integer_or("num_local_experts", json.integer_or("num_experts", 8)),
                    .intermediate_size = config.intermediate_size,
                    .route = {.k = json.integer_or("num_experts_per_tok", 2), .normalize = true},
                    .jitter = json.real_or("router_jitter_noise", 0.0),
                    .balance_coefficient = json.real_or("router_aux_loss_coef", 0.001)};
  return config;
}

std::string write(const ModelConfig& config, DType dtype) {
  auto json = llama_keys(config, "MixtralForCausalLM", dtype, {.norm_eps = 1e-5});
  json["sliding_window"] =
      config.sliding_window.size > 0 ? nlohmann::ordered_json(config.sliding_window.size) : nullptr;
  json["num_experts_per_tok"] = config.experts.route.k;
  json["num_local_experts"] = config.experts.count;
  json["output_router_logits"] = false;
  json["router_aux_loss_coef"] = config.experts.balance_coefficient;
  json["router_jitter_noise"] = config.experts.jitter;
  return dump_json(json, 2) + "\n";
}

std::vector<TensorRow> tensors(const ModelConfig& config) {
  return llama_tensors_with_experts(config,
                                    {.block = "block_sparse_moe", .gate = "w1", .up = "w3", .down = "w2"});
}

constexpr PresetRow kPresets[] = {
    {"mixtral-8x7b", "Mixtral 8x7B, 2 of 8 experts", 4096, 32, 32, 8, 128, 14336, 32000, 32768,
     R"("router_aux_loss_coef":0.02)"},
    {"mixtral-8x22b", "Mixtral 8x22B, 2 of 8 experts", 6144, 56, 48, 8, 128, 16384, 32768, 65536,
     R"("router_aux_loss_coef":0.001)"},
};

}  // namespace

const Family kMixtral{
    .name = "mixtral",
    .model_type = "mixtral",
    .build = build_stack,
    .read = read,
    .write = write,
    .tensors = tensors,
    .ignored = llama_ignores,
    .optional_prefix = "model.",
    .presets = kPresets,
};

}  // namespace strata::models
