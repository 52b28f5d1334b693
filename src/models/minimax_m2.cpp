// MiniMax-M2: norms of whole projections of q and k, a part of each head rotates, and in every layer experts by
// sigmoid scores with a bias, whose weights add up to 1.

#include "base/json.h"
#include "models/decoder.h"
#include "models/families.h"
#include "models/llama_layout.h"

namespace strata::models {
namespace {

constexpr LlamaDefaults kDefaults{.max_positions = 196608, .rope_theta = 5e6};

ModelConfig read(const std::string& text, const std::string& where) {
  const ConfigJson json(text, where);
  // Keys of the published files, which transformers does not read.
  json.require_equal("use_qk_norm", true);
  json.require_equal("qk_norm_type", "per_layer");
  json.require_equal("scoring_func", "sigmoid");
  json.require_equal("use_routing_bias", true);
  json.require_equal("shared_intermediate_size", 0);
  ModelConfig config = read_llama_keys(json, kMiniMaxM2, kDefaults);
  config.head_dim = json.integer_or("head_dim", 128);
  config.qk_norm = layers::AttentionSpec::QkNorm::kProjection;
  const double rotary_dim = json.real_or("rotary_dim", static_cast<double>(config.head_dim));
  config.partial_rotary_factor =
      json.partial_rotary_factor(rotary_dim / static_cast<double>(config.head_dim));
  config.experts = {.count = json.integer_or("num_local_experts", json.integer_or("num_experts", 256)),
                    .intermediate_size = config.intermediate_size,
                    .route = {.k = json.integer_or("num_experts_per_tok", 8),
                              .score = ops::RouteAttrs::Score::kSigmoid,
                              .normalize = true},
                    .router_bias = true,
                    .bias_rate = 1e-3,
                    .jitter = json.real_or("router_jitter_noise", 0),
                    .balance_coefficient = json.real_or("router_aux_loss_coef", 0.001)};
  return config;
}

std::string write(const ModelConfig& config, DType dtype) {
  auto json = llama_keys(config, "MiniMaxM2ForCausalLM", dtype, kDefaults);
  json["num_experts_per_tok"] = config.experts.route.k;
  json["num_local_experts"] = config.experts.count;
  json["output_router_logits"] = false;
  json["partial_rotary_factor"] = config.partial_rotary_factor;
  json["router_aux_loss_coef"] = config.experts.balance_coefficient;
  json["router_jitter_noise"] = config.experts.jitter;
  return dump_json(json, 2) + "\n";
}

std::vector<TensorRow> tensors(const ModelConfig& config) {
  auto rows = llama_tensors_with_experts(
      config, {.block = "block_sparse_moe", .gate = "w1", .up = "w3", .down = "w2"});
  constexpr std::string_view kBias = ".gate.e_score_correction_bias";
  for (TensorRow& row : rows) {  // the bias is next to the gate
    if (row.file_name.ends_with(kBias))
      row.file_name.erase(row.file_name.size() - kBias.size(), std::string_view(".gate").size());
  }
  return rows;
}

// The modules that predict further tokens, which transformers does not read either.
bool ignored(const ModelConfig& config, std::string_view name) {
  return llama_ignores(config, name) || name.starts_with("model.mtp.");
}

constexpr PresetRow kPresets[] = {
    {"minimax-m2", "MiniMax-M2 230B-A10B, 8 of 256 experts", 3072, 62, 48, 8, 128, 1536, 200064, 196608,
     R"("rope_theta":5e6,"partial_rotary_factor":0.5,"bos_token_id":200034,"eos_token_id":200020)"},
};

}  // namespace

const Family kMiniMaxM2{
    .name = "minimax-m2",
    .model_type = "minimax_m2",
    .build = build_stack,
    .read = read,
    .write = write,
    .tensors = tensors,
    .ignored = ignored,
    .optional_prefix = "model.",
    .presets = kPresets,
};

}  // namespace strata::models
