// DeepSeek-V2 and V3 (Moonlight and Kimi-K2 are of the latter's shape): Llama with latent attention. Rotated
// pairs are adjacent. Layers of experts are not read yet: all must be dense.
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "models/decoder.h"
#include "models/families.h"
#include "models/llama_layout.h"

namespace strata::models {
namespace {

// What a config.json that leaves a key out means by it, where the classes differ.
struct Defaults {
  LlamaDefaults llama;
  int64_t dense_layers;
};
constexpr Defaults kOfV2{{.max_positions = 2048}, 0};
constexpr Defaults kOfV3{{.max_positions = 4096}, 3};

// q_lora_rank: null means no latent of queries, and its absence the class's 1536.
int64_t query_rank(const ConfigJson& json) {
  return json.real_or_none("q_lora_rank", 1536) == 0 ? 0 : json.integer_or("q_lora_rank", 1536);
}

ModelConfig read(const ConfigJson& json, const std::string& where, const Family& family,
                 const Defaults& defaults) {
  ModelConfig config = read_llama_keys(json, family, defaults.llama);
  json.require_equal("num_key_value_heads", config.heads);
  config.kv_heads = config.heads;
  const layers::LatentDims dims{.query_rank = query_rank(json),
                                .rank = json.integer_or("kv_lora_rank", 512),
                                .plain_dim = json.integer_or("qk_nope_head_dim", 128),
                                .rotary_dim = json.integer_or("qk_rope_head_dim", 64),
                                .value_dim = json.integer_or("v_head_dim", 128)};
  config.latent = dims;
  config.head_dim = dims.head_dim();
  config.out_bias = json.boolean_or("attention_bias", false);
  const auto dense =
      static_cast<int64_t>(json.real_or("first_k_dense_replace", static_cast<double>(defaults.dense_layers)));
  if (dense < config.layers) {
    throw DataError(
        "[{}] \"first_k_dense_replace\" is {} of {} layers; layers of experts are not supported yet, so that "
        "all "
        "must be dense",
        where, dense, config.layers);
  }
  return config;
}

nlohmann::ordered_json keys_of(const ModelConfig& config, const char* architecture, DType dtype) {
  auto json = llama_keys(config, architecture, dtype);
  const layers::LatentDims& dims = *config.latent;
  json["q_lora_rank"] = dims.query_rank > 0 ? nlohmann::ordered_json(dims.query_rank) : nullptr;
  json["kv_lora_rank"] = dims.rank;
  json["qk_nope_head_dim"] = dims.plain_dim;
  json["qk_rope_head_dim"] = dims.rotary_dim;
  json["v_head_dim"] = dims.value_dim;
  json["attention_bias"] = config.out_bias;
  json["first_k_dense_replace"] = config.layers;
  return json;
}

ModelConfig read_v2(const std::string& text, const std::string& where) {
  const ConfigJson json(text, where);
  ModelConfig config = read(json, where, kDeepseekV2, kOfV2);
  config.ffn_bias = json.boolean_or("mlp_bias", false);
  return config;
}

std::string write_v2(const ModelConfig& config, DType dtype) {
  auto json = keys_of(config, "DeepseekV2ForCausalLM", dtype);
  json["mlp_bias"] = config.ffn_bias;
  return json.dump(2) + "\n";
}

ModelConfig read_v3(const std::string& text, const std::string& where) {
  const ConfigJson json(text, where);
  ModelConfig config = read(json, where, kDeepseekV3, kOfV3);
  config.adjacent_rotary_pairs = json.boolean_or("rope_interleave", true);
  return config;
}

std::string write_v3(const ModelConfig& config, DType dtype) {
  auto json = keys_of(config, "DeepseekV3ForCausalLM", dtype);
  json["rope_interleave"] = config.adjacent_rotary_pairs;
  json["num_nextn_predict_layers"] = 0;
  return json.dump(2) + "\n";
}

std::vector<TensorRow> tensors(const ModelConfig& config) {
  const layers::LatentDims& dims = *config.latent;
  std::vector<TensorRow> list;
  for (TensorRow& row : llama_tensors(config)) {
    const size_t at = row.file_name.find("self_attn.q_proj.weight");
    if (at == std::string::npos) {
      if (row.parameter.find("attention.qkv") == std::string::npos) list.push_back(std::move(row));
      continue;
    }
    const std::string file = row.file_name.substr(0, at) + "self_attn.";
    const std::string ours = row.parameter.substr(0, row.parameter.find("qkv"));
    const auto add = [&](const char* name, const char* parameter, int64_t first, int64_t rows,
                         bool bias = false) {
      list.push_back({file + name + ".weight", ours + parameter + ".weight", first, rows});
      if (bias) list.push_back({file + name + ".bias", ours + parameter + ".bias", first, rows});
    };
    const bool of_latent = dims.query_rank > 0;
    add(of_latent ? "q_b_proj" : "q_proj", "q", 0, config.q_width());
    if (of_latent) {
      add("q_a_proj", "down", 0, dims.query_rank, config.out_bias);
      add("q_a_layernorm", "query_norm", 0, dims.query_rank);
    }
    add("kv_a_proj_with_mqa", "down", dims.query_rank, dims.rank + dims.rotary_dim, config.out_bias);
    add("kv_a_layernorm", "latent_norm", 0, dims.rank);
    add("kv_b_proj", "kv", 0, config.heads * (dims.plain_dim + dims.value_dim));
    list.back().interleave = {{dims.plain_dim, dims.value_dim}};
  }
  return list;
}

// Dense models of these classes, for tests and small experiments; those that were published have experts.
constexpr PresetRow kV2Presets[] = {
    {"deepseek2-8m", "DeepSeek-V2's attention, dense", 256, 4, 4, 4, 0, 768, 4096, 2048,
     R"("q_lora_rank":null,"kv_lora_rank":128,"qk_nope_head_dim":64,"qk_rope_head_dim":32,"v_head_dim":64,
        "first_k_dense_replace":4)"},
};
constexpr PresetRow kV3Presets[] = {
    {"deepseek3-8m", "DeepSeek-V3's attention, dense", 256, 4, 4, 4, 0, 768, 4096, 2048,
     R"("q_lora_rank":192,"kv_lora_rank":128,"qk_nope_head_dim":64,"qk_rope_head_dim":32,"v_head_dim":64,
        "first_k_dense_replace":4)"},
};

}  // namespace

const Family kDeepseekV2{
    .name = "deepseek2",
    .model_type = "deepseek_v2",
    .build = build_stack,
    .read = read_v2,
    .write = write_v2,
    .tensors = tensors,
    .ignored = llama_ignores,
    .optional_prefix = "model.",
    .size_keys = {.head_dim = nullptr},
    .presets = kV2Presets,
};
const Family kDeepseekV3{
    .name = "deepseek3",
    .model_type = "deepseek_v3",
    .build = build_stack,
    .read = read_v3,
    .write = write_v3,
    .tensors = tensors,
    .ignored = llama_ignores,
    .optional_prefix = "model.",
    .size_keys = {.head_dim = nullptr},
    .presets = kV3Presets,
};

}  // namespace strata::models
