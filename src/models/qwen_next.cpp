// Qwen3-Next and Qwen3.5: three layers with a gated delta net to one with attention, whose output has a gate. Norms by
// 1 + w, queries and keys normalized by head, a quarter of a head rotates. Feed-forward is dense in Qwen3.5, otherwise
// experts and a shared one that a gate weighs.

#include <algorithm>

#include "base/json.h"
#include "models/decoder.h"
#include "models/families.h"
#include "models/hybrid.h"
#include "models/llama_layout.h"

namespace strata::models {
namespace {

struct Defaults {
  int64_t kv_heads, experts, experts_per_token;
  bool has_dense_layers = true;
};
constexpr int64_t kUnused = 512;  // width of feed-forward blocks that no layer has

ModelConfig read_any(const ConfigJson& json, const Family& family, const Defaults& defaults) {
  ModelConfig config = read_llama_keys(
      json, family, {.max_positions = 32768, .intermediate_size = defaults.has_dense_layers ? 0 : kUnused});
  config.kv_heads = json.integer_or("num_key_value_heads", defaults.kv_heads);
  config.head_dim = json.integer_or("head_dim", 256);
  config.norm_weight_offset = 1;
  config.qk_norm = layers::AttentionSpec::QkNorm::kHead;
  config.attention_gate = true;
  config.qkv_bias = config.out_bias = json.boolean_or("attention_bias", false);
  config.partial_rotary_factor = json.partial_rotary_factor(0.25);
  config.layer_kinds = read_kinds(json, config.layers, kLinearNames,
                                  json.integer_or("full_attention_interval", 4), layers::Mixer::kDelta);
  config.delta = layers::DeltaDims{.key_heads = json.integer_or("linear_num_key_heads", 16),
                                   .value_heads = json.integer_or("linear_num_value_heads", 32),
                                   .key_dim = json.integer_or("linear_key_head_dim", 128),
                                   .value_dim = json.integer_or("linear_value_head_dim", 128),
                                   .taps = json.integer_or("linear_conv_kernel_dim", 4),
                                   .norm_eps = config.norm_eps,
                                   .least_rate = 0.01,
                                   .most_rate = 16};
  if (defaults.experts > 0) {
    config.experts = {.count = json.integer_or("num_experts", defaults.experts),
                      .intermediate_size = json.integer_or("moe_intermediate_size", 512),
                      .route = {.k = json.integer_or("num_experts_per_tok", defaults.experts_per_token),
                                .normalize = json.boolean_or("norm_topk_prob", true)},
                      .shared_size = json.integer_or("shared_expert_intermediate_size", 512),
                      .shared_gate = true,
                      .period = json.integer_or("decoder_sparse_step", 1),
                      .dense = json.integers("mlp_only_layers"),
                      .balance_coefficient = json.real_or("router_aux_loss_coef", 0.001)};
  }
  return config;
}

nlohmann::ordered_json keys_of_all(const ModelConfig& config, const char* architecture, DType dtype) {
  auto json = llama_keys(config, architecture, dtype);
  const layers::DeltaDims& dims = config.delta.value();
  json["attention_bias"] = config.qkv_bias;
  json["partial_rotary_factor"] = config.partial_rotary_factor;
  json["layer_types"] = kinds_json(config, kLinearNames);
  json["linear_conv_kernel_dim"] = dims.taps;
  json["linear_key_head_dim"] = dims.key_dim;
  json["linear_num_key_heads"] = dims.key_heads;
  json["linear_num_value_heads"] = dims.value_heads;
  json["linear_value_head_dim"] = dims.value_dim;
  if (config.experts.count > 0) {
    json["moe_intermediate_size"] = config.experts.intermediate_size;
    json["num_experts"] = config.experts.count;
    json["num_experts_per_tok"] = config.experts.route.k;
    json["output_router_logits"] = false;
    json["router_aux_loss_coef"] = config.experts.balance_coefficient;
    json["shared_expert_intermediate_size"] = config.experts.shared_size;
  }
  return json;
}

ModelConfig read_next(const std::string& text, const std::string& where) {
  return read_any(ConfigJson(text, where), kQwen3Next, {2, 512, 10});
}
std::string write_next(const ModelConfig& config, DType dtype) {
  auto json = keys_of_all(config, "Qwen3NextForCausalLM", dtype);
  json["decoder_sparse_step"] = std::max<int64_t>(config.experts.period, 1);
  json["mlp_only_layers"] = config.experts.dense;
  json["norm_topk_prob"] = config.experts.route.normalize;
  return dump_json(json, 2) + "\n";
}

ModelConfig read_35(const std::string& text, const std::string& where) {
  return read_any(ConfigJson(text, where), kQwen35, {4, 0, 0});
}
std::string write_35(const ModelConfig& config, DType dtype) {
  return dump_json(keys_of_all(config, "Qwen3_5ForCausalLM", dtype), 2) + "\n";
}

ModelConfig read_35_moe(const std::string& text, const std::string& where) {
  const ConfigJson json(text, where);
  // The class has none of these: all layers have experts, whose weights are normalized.
  json.require_equal("norm_topk_prob", true);
  json.require_equal("decoder_sparse_step", 1);
  json.require_equal("mlp_only_layers", nlohmann::json::array());
  return read_any(json, kQwen35Moe, {2, 256, 8, false});
}
std::string write_35_moe(const ModelConfig& config, DType dtype) {
  auto json = keys_of_all(config, "Qwen3_5MoeForCausalLM", dtype);
  json.erase("intermediate_size");
  return dump_json(json, 2) + "\n";
}

// Qwen3-Next's files have the projections of a delta net fused, by key head.
std::vector<TensorRow> next_tensors(const ModelConfig& config) {
  return hybrid_tensors(config, {.stored = DeltaNames::Stored::kByKeyHead});
}
std::vector<TensorRow> tensors_35(const ModelConfig& config) {
  return hybrid_tensors(config, {});
}

bool ignored(const ModelConfig& config, std::string_view name) {
  return llama_ignores(config, name) || name.starts_with("mtp.");
}

constexpr PresetRow kNextPresets[] = {
    {"qwen3-next-80b-a3b", "Qwen3-Next 80B-A3B, 10 of 512 experts", 2048, 48, 16, 2, 256, 5120, 151936,
     262144, R"("rope_theta":1e7,"bos_token_id":151643,"eos_token_id":151645)"},
};
constexpr PresetRow k35Presets[] = {
    {"gdn-30m", "small, three gated delta nets to one attention", 512, 8, 8, 2, 64, 1280, 8192, 4096,
     R"("linear_num_key_heads":8,"linear_num_value_heads":8,"linear_key_head_dim":64,"linear_value_head_dim":64,"rope_theta":1e5,"tie_word_embeddings":true)"},
    {"gdn-1b", "Primus' gdn_1B, only gated delta nets", 2048, 16, 16, 16, 128, 8192, 128256, 8192,
     R"("full_attention_interval":17,"linear_num_key_heads":8,"linear_num_value_heads":16,"linear_key_head_dim":64,"linear_value_head_dim":64,"tie_word_embeddings":true)"},
    {"qwen3.5-9b", "Qwen3.5 9B", 4096, 32, 16, 4, 256, 12288, 248320, 262144, R"("rope_theta":1e7)"},
    {"qwen3.5-27b", "Qwen3.5 27B", 5120, 64, 24, 4, 256, 17408, 248320, 262144,
     R"("rope_theta":1e7,"linear_num_value_heads":48)"},
};
constexpr PresetRow k35MoePresets[] = {
    {"qwen3.5-35b-a3b", "Qwen3.5 35B-A3B, 8 of 256 experts and a shared one", 2048, 40, 16, 2, 256, 5632,
     248320, 262144, R"("rope_theta":1e7)"},
};

}  // namespace

const Family kQwen3Next{
    .name = "qwen3-next",
    .model_type = "qwen3_next",
    .build = build_stack,
    .read = read_next,
    .write = write_next,
    .tensors = next_tensors,
    .ignored = ignored,
    .optional_prefix = "model.",
    .presets = kNextPresets,
};
const Family kQwen35{
    .name = "qwen3.5",
    .model_type = "qwen3_5_text",
    .build = build_stack,
    .read = read_35,
    .write = write_35,
    .tensors = tensors_35,
    .ignored = ignored,
    .optional_prefix = "model.",
    .presets = k35Presets,
};
const Family kQwen35Moe{
    .name = "qwen3.5-moe",
    .model_type = "qwen3_5_moe_text",
    .build = build_stack,
    .read = read_35_moe,
    .write = write_35_moe,
    .tensors = tensors_35,
    .ignored = ignored,
    .optional_prefix = "model.",
    .presets = k35MoePresets,
};

}  // namespace strata::models
