// Granite 4: Mamba-2 in most layers, attention in some, without rotation in published models; experts and a
// shared block, or only this block. Constant multipliers on the embedding, on the results of blocks, on scores and on
// logits.

#include <cmath>

#include "base/json.h"
#include "models/decoder.h"
#include "models/families.h"
#include "models/hybrid.h"
#include "models/llama_layout.h"
#include "models/state_space_layout.h"

namespace strata::models {
namespace {

constexpr KindName kKinds[] = {{"mamba", {layers::Mixer::kStateSpace}},
                               {"attention", {layers::Mixer::kAttention}},
                               {"linear_attention", {layers::Mixer::kStateSpace}},
                               {"full_attention", {layers::Mixer::kAttention}}};

ModelConfig read(const std::string& text, const std::string& where) {
  const ConfigJson json(text, where);
  ModelConfig config = read_llama_keys(json, kGraniteHybrid);
  config.bos_id = json.optional_id("bos_token_id", 1);
  config.eos_id = json.optional_id("eos_token_id", 2);
  if (json.text_or("position_embedding_type", "nope") != "rope") {
    json.require_equal("position_embedding_type", "nope");
    config.positions = Positions::kAbsent;
  }
  config.qkv_bias = config.out_bias = json.boolean_or("attention_bias", false);
  config.embedding_multiplier = json.real_or("embedding_multiplier", 1);
  config.residual_multiplier = json.real_or("residual_multiplier", 1);
  config.logits_divisor = json.real_or("logits_scaling", 1);
  const double of_scores = json.real_or("attention_multiplier", 1);
  config.attention_scalar = 1 / (of_scores * of_scores);
  config.layer_kinds = read_kinds(json, config.layers, kKinds, config.layers + 1, layers::Mixer::kStateSpace);
  const int64_t expand = json.integer_or("mamba_expand", 2), heads = json.integer_or("mamba_n_heads", 128);
  const bool is_auto = json.is_text("mamba_d_head") || !json.has("mamba_d_head");
  layers::StateSpaceDims dims{
      .heads = heads,
      .head_dim = is_auto ? expand * config.hidden_size / heads : json.integer("mamba_d_head"),
      .groups = json.integer_or("mamba_n_groups", 1),
      .state_dim = json.integer_or("mamba_d_state", 256),
      .taps = json.integer_or("mamba_d_conv", 4),
      .convolution_bias = json.boolean_or("mamba_conv_bias", true),
      .bias = json.boolean_or("mamba_proj_bias", false),
      .norm_eps = config.norm_eps};
  read_step_limits(json, dims);
  require_heads_of_width(json, "mamba_n_heads", dims, expand * config.hidden_size);
  config.state_space = dims;
  const int64_t shared = json.integer_or("shared_intermediate_size", 1024);
  if (const int64_t count = json.count_or("num_local_experts", 8); count > 0) {
    config.experts = {.count = count,
                      .intermediate_size = config.intermediate_size,
                      .route = {.k = json.integer_or("num_experts_per_tok", 2), .normalize = true},
                      .shared_size = shared,
                      .balance_coefficient = json.real_or("router_aux_loss_coef", 0.001)};
  } else {
    config.intermediate_size = shared;
  }
  return config;
}

std::string write(const ModelConfig& config, DType dtype) {
  auto json = llama_keys(config, "GraniteMoeHybridForCausalLM", dtype);
  const layers::StateSpaceDims& dims = config.state_space.value();
  const Experts& experts = config.experts;
  json["attention_bias"] = config.qkv_bias;
  json["attention_multiplier"] = 1 / std::sqrt(config.attention_scalar);
  json["embedding_multiplier"] = config.embedding_multiplier;
  if (experts.count > 0) json["intermediate_size"] = experts.intermediate_size;
  json["layer_types"] = kinds_json(config, kKinds);
  json["logits_scaling"] = config.logits_divisor;
  json["mamba_conv_bias"] = dims.convolution_bias;
  json["mamba_d_conv"] = dims.taps;
  json["mamba_d_head"] = dims.head_dim;
  json["mamba_d_state"] = dims.state_dim;
  json["mamba_expand"] = dims.width() / config.hidden_size;
  json["mamba_n_groups"] = dims.groups;
  json["mamba_n_heads"] = dims.heads;
  json["mamba_proj_bias"] = dims.bias;
  json["num_experts_per_tok"] = experts.count > 0 ? experts.route.k : 0;
  json["num_local_experts"] = experts.count;
  json["output_router_logits"] = false;
  json["position_embedding_type"] = config.positions == Positions::kAbsent ? "nope" : "rope";
  json["residual_multiplier"] = config.residual_multiplier;
  json["router_aux_loss_coef"] = experts.balance_coefficient;
  json["shared_intermediate_size"] = experts.count > 0 ? experts.shared_size : config.intermediate_size;
  json["time_step_limit"] = step_limits_json(dims);
  return dump_json(json, 2) + "\n";
}

std::vector<TensorRow> tensors(const ModelConfig& config) {
  const int64_t width = config.hidden_size, q = config.q_width(), kv = config.kv_width();
  const Experts& experts = config.experts;
  std::vector<TensorRow> list{{"model.embed_tokens.weight", "embedding.weight", 0, config.vocab_size}};
  for (int64_t i = 0; i < config.layers; ++i) {
    const std::string file = "model.layers." + std::to_string(i) + ".",
                      ours = "layers." + std::to_string(i) + ".";
    const auto add = [&](const std::string& name, const char* parameter, int64_t row, int64_t rows,
                         bool bias = false) {
      list.push_back({file + name + ".weight", ours + parameter + ".weight", row, rows});
      if (bias) list.push_back({file + name + ".bias", ours + parameter + ".bias", row, rows});
    };
    add("input_layernorm", "attention_norm", 0, width);
    add("post_attention_layernorm", "ffn_norm", 0, width);
    if (config.has_attention(i)) {
      add("self_attn.q_proj", "attention.qkv", 0, q, config.qkv_bias);
      add("self_attn.k_proj", "attention.qkv", q, kv, config.qkv_bias);
      add("self_attn.v_proj", "attention.qkv", q + kv, kv, config.qkv_bias);
      add("self_attn.o_proj", "attention.out", 0, width, config.out_bias);
    } else {
      add_state_space_rows(config.state_space.value(), width, file + "mamba.", ours + "mixer.", list);
    }
    const bool shared = experts.count > 0;
    add("shared_mlp.input_linear", shared ? "ffn.shared.up" : "ffn.up", 0,
        2 * (shared ? experts.shared_size : config.intermediate_size));
    add("shared_mlp.output_linear", shared ? "ffn.shared.down" : "ffn.down", 0, width);
    if (!shared) continue;
    add_router_rows(experts, file + "block_sparse_moe.router.layer", file + "block_sparse_moe.router.groups",
                    ours, list);
    const auto all = [&](const char* name, const char* parameter, int64_t rows) {
      list.push_back({.file_name = file + "block_sparse_moe." + name + ".weight",
                      .parameter = ours + parameter + ".weight",
                      .rows = experts.count * rows,
                      .blocks = experts.count});
    };
    all("input_linear", "ffn.experts.up", 2 * experts.intermediate_size);
    all("output_linear", "ffn.experts.down", width);
  }
  list.push_back({"model.norm.weight", "final_norm.weight", 0, width});
  if (!config.tied) list.push_back({"lm_head.weight", "head.weight", 0, config.vocab_size});
  return list;
}

constexpr PresetRow kPresets[] = {
    {"granite-4.0-h-tiny", "Granite 4.0 H-Tiny, 6 of 64 experts and a shared one", 1536, 40, 12, 4, 128, 512,
     100352, 131072,
     R"("num_local_experts":64,"num_experts_per_tok":6,"shared_intermediate_size":1024,"mamba_n_heads":48,
        "mamba_d_state":128,"attention_multiplier":0.0078125,"embedding_multiplier":12,"logits_scaling":6,
        "residual_multiplier":0.22,"tie_word_embeddings":true,"rms_norm_eps":1e-5,
        "layer_types":["mamba","mamba","mamba","mamba","mamba","attention","mamba","mamba","mamba","mamba",
        "mamba","mamba","mamba","mamba","mamba","attention","mamba","mamba","mamba","mamba",
        "mamba","mamba","mamba","mamba","mamba","attention","mamba","mamba","mamba","mamba",
        "mamba","mamba","mamba","mamba","mamba","attention","mamba","mamba","mamba","mamba"])"},
};

}  // namespace

const Family kGraniteHybrid{
    .name = "granite-hybrid",
    .model_type = "granitemoehybrid",
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
