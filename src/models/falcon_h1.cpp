// Falcon-H1: attention and Mamba-2 side by side in every layer, both reading one norm, and constant multipliers on what
// they read and return.

#include <fmt/format.h>

#include <cmath>

#include "base/json.h"
#include "models/decoder.h"
#include "models/families.h"
#include "models/hybrid.h"
#include "models/llama_layout.h"
#include "models/state_space_layout.h"

namespace strata::models {
namespace {

using Norm = layers::StateSpaceDims::Norm;

std::vector<double> multipliers(const ConfigJson& json, const char* key, size_t count) {
  const std::vector<double> found = json.reals(key);
  if (found.empty()) return std::vector<double>(count, 1);
  if (found.size() != count)
    json.reject(key, fmt::format("{} numbers", found.size()), fmt::format("{}", count));
  return found;
}

ModelConfig read(const std::string& text, const std::string& where) {
  const ConfigJson json(text, where);
  ModelConfig config =
      read_llama_keys(json, kFalconH1, {.norm_eps = 1e-5, .max_positions = 8192, .pad_id = 0});
  config.kv_heads =
      json.is_null("num_key_value_heads") ? config.heads : json.integer_or("num_key_value_heads", 8);
  config.bos_id = json.optional_id("bos_token_id", 1);
  config.eos_id = json.optional_id("eos_token_id", 2);
  config.qkv_bias = config.out_bias = json.boolean_or("attention_bias", false);
  config.ffn_bias = json.boolean_or("mlp_bias", false);
  json.require_equal("projectors_bias", false);
  config.layer_kinds.assign(static_cast<size_t>(config.layers), {layers::Mixer::kParallel});
  const int64_t heads = json.integer_or("mamba_n_heads", 128);
  const int64_t width = json.is_null("mamba_d_ssm") ? json.integer_or("mamba_expand", 2) * config.hidden_size
                                                    : json.integer_or("mamba_d_ssm", 1024);
  const bool is_auto = json.is_text("mamba_d_head") || !json.has("mamba_d_head");
  layers::StateSpaceDims dims{.heads = heads,
                              .head_dim = is_auto ? width / heads : json.integer("mamba_d_head"),
                              .groups = json.integer_or("mamba_n_groups", 1),
                              .state_dim = json.integer_or("mamba_d_state", 256),
                              .taps = json.integer_or("mamba_d_conv", 4),
                              .convolution_bias = json.boolean_or("mamba_conv_bias", true),
                              .bias = json.boolean_or("mamba_proj_bias", false),
                              .norm = !json.boolean_or("mamba_rms_norm", false)         ? Norm::kAbsent
                                      : json.boolean_or("mamba_norm_before_gate", true) ? Norm::kNormFirst
                                                                                        : Norm::kGateFirst,
                              .norm_eps = config.norm_eps,
                              .multipliers = multipliers(json, "ssm_multipliers", 5)};
  read_step_limits(json, dims);
  require_heads_of_width(json, "mamba_n_heads", dims, width);
  config.state_space = dims;
  config.embedding_multiplier = json.real_or("embedding_multiplier", 1);
  config.logits_divisor = 1 / json.real_or("lm_head_multiplier", 1);
  config.mixer_multipliers = {json.real_or("attention_in_multiplier", 1),
                              json.real_or("attention_out_multiplier", 1),
                              json.real_or("ssm_in_multiplier", 1), json.real_or("ssm_out_multiplier", 1)};
  const std::vector<double> ffn = multipliers(json, "mlp_multipliers", 2);
  config.ffn_gate_multiplier = ffn[0];
  config.ffn_out_multiplier = ffn[1];
  // Keys are multiplied before they rotate, which scales their scores.
  const double of_keys = json.real_or("key_multiplier", 1);
  config.attention_scalar = static_cast<double>(config.head_dim) / (of_keys * of_keys);
  return config;
}

std::string write(const ModelConfig& config, DType dtype) {
  auto json = llama_keys(config, "FalconH1ForCausalLM", dtype, {.norm_eps = 1e-5});
  const layers::StateSpaceDims& dims = config.state_space.value();
  const auto& times = config.mixer_multipliers;
  json["attention_bias"] = config.qkv_bias;
  json["attention_in_multiplier"] = times.attention_in;
  json["attention_out_multiplier"] = times.attention_out;
  json["embedding_multiplier"] = config.embedding_multiplier;
  json["key_multiplier"] = std::sqrt(static_cast<double>(config.head_dim) / config.attention_scalar);
  json["lm_head_multiplier"] = 1 / config.logits_divisor;
  json["mamba_conv_bias"] = dims.convolution_bias;
  json["mamba_d_conv"] = dims.taps;
  json["mamba_d_head"] = dims.head_dim;
  json["mamba_d_ssm"] = dims.width();
  json["mamba_d_state"] = dims.state_dim;
  json["mamba_n_groups"] = dims.groups;
  json["mamba_n_heads"] = dims.heads;
  json["mamba_norm_before_gate"] = dims.norm != Norm::kGateFirst;
  json["mamba_proj_bias"] = dims.bias;
  json["mamba_rms_norm"] = dims.norm != Norm::kAbsent;
  json["mlp_bias"] = config.ffn_bias;
  json["mlp_multipliers"] = {config.ffn_gate_multiplier, config.ffn_out_multiplier};
  json["projectors_bias"] = false;
  json["ssm_in_multiplier"] = times.mixer_in;
  json["ssm_multipliers"] = dims.multipliers;
  json["ssm_out_multiplier"] = times.mixer_out;
  json["time_step_limit"] = step_limits_json(dims);
  return dump_json(json, 2) + "\n";
}

std::vector<TensorRow> tensors(const ModelConfig& config) {
  const int64_t width = config.hidden_size, q = config.q_width(), kv = config.kv_width(),
                ffn = config.intermediate_size;
  std::vector<TensorRow> list{{"model.embed_tokens.weight", "embedding.weight", 0, config.vocab_size}};
  for (int64_t i = 0; i < config.layers; ++i) {
    const std::string file = "model.layers." + std::to_string(i) + ".",
                      ours = "layers." + std::to_string(i) + ".";
    const auto add = [&](const char* name, const char* parameter, int64_t row, int64_t rows,
                         bool bias = false) {
      list.push_back({file + name + ".weight", ours + parameter + ".weight", row, rows});
      if (bias) list.push_back({file + name + ".bias", ours + parameter + ".bias", row, rows});
    };
    add("input_layernorm", "attention_norm", 0, width);
    add("pre_ff_layernorm", "ffn_norm", 0, width);
    add("self_attn.q_proj", "attention.qkv", 0, q, config.qkv_bias);
    add("self_attn.k_proj", "attention.qkv", q, kv, config.qkv_bias);
    add("self_attn.v_proj", "attention.qkv", q + kv, kv, config.qkv_bias);
    add("self_attn.o_proj", "attention.out", 0, width, config.out_bias);
    add_state_space_rows(config.state_space.value(), width, file + "mamba.", ours + "mixer.", list);
    add("feed_forward.gate_proj", "ffn.up", 0, ffn, config.ffn_bias);
    add("feed_forward.up_proj", "ffn.up", ffn, ffn, config.ffn_bias);
    add("feed_forward.down_proj", "ffn.down", 0, width, config.ffn_bias);
  }
  list.push_back({"model.final_layernorm.weight", "final_norm.weight", 0, width});
  if (!config.tied) list.push_back({"lm_head.weight", "head.weight", 0, config.vocab_size});
  return list;
}

constexpr PresetRow kPresets[] = {
    {"falcon-h1-0.5b", "Falcon-H1 0.5B", 1024, 36, 8, 2, 64, 2048, 32784, 16384,
     R"("mamba_d_ssm":1536,"mamba_n_heads":24,"mamba_d_head":64,"mamba_d_state":128,"rope_theta":1e11)"},
};

}  // namespace

const Family kFalconH1{
    .name = "falcon-h1",
    .model_type = "falcon_h1",
    .build = build_stack,
    .read = read,
    .write = write,
    .tensors = tensors,
    .ignored = llama_ignores,
    .optional_prefix = "model.",
    .presets = kPresets,
};

}  // namespace strata::models
