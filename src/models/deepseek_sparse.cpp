// DeepSeek-V3.2 and GLM-5: DeepSeek-V3 with an indexer, which chooses the keys that each token attends to. GLM-5's indexer
// rotates adjacent pairs, and some of its layers share the choice of an earlier one.

#include <fmt/core.h>

#include <algorithm>

#include "base/json.h"
#include "models/decoder.h"
#include "models/deepseek.h"
#include "models/families.h"
#include "models/sigmoid_experts.h"

namespace strata::models {
namespace {

constexpr const char* kFull = "full";
constexpr const char* kShared = "shared";

// mlp_layer_types, if present, lists dense layers and then layers with experts: the number of the former. -1: absent.
int64_t dense_layers(const ConfigJson& json, int64_t layers) {
  const std::vector<std::string> types = json.texts("mlp_layer_types");
  if (types.empty()) return -1;
  if (std::ssize(types) != layers)
    json.reject("mlp_layer_types", fmt::format("{} entries", types.size()),
                fmt::format("one for each of {} layers", layers));
  int64_t dense = 0;
  while (dense < layers && types[static_cast<size_t>(dense)] == "dense") ++dense;
  for (int64_t i = dense; i < layers; ++i) {
    const std::string& type = types[static_cast<size_t>(i)];
    if (type != "sparse")
      json.reject("mlp_layer_types", fmt::format("\"{}\" for layer {}", type, i),
                  "\"dense\" for the first layers and \"sparse\" for all others");
  }
  return dense;
}

ModelConfig read_sparse(const ConfigJson& json, const Family& family, const LlamaDefaults& defaults,
                        int64_t index_heads) {
  ModelConfig config = read_latent_keys(json, family, defaults);
  config.adjacent_rotary_pairs = true;
  if (config.latent->query_rank == 0)
    json.reject("q_lora_rank", "null", "a rank: the indexer reads the latent of the queries");
  read_prediction(json, config);
  json.require_equal("scoring_func", "sigmoid");
  json.require_equal("topk_method", "noaux_tc");
  const bool is_glm = &family == &kGlmDsa;
  // The classes know no other order; other readers ask for these keys.
  json.require_equal("rope_interleave", true);
  json.require_equal("indexer_rope_interleave", is_glm);
  config.experts = read_sigmoid_experts(json, {.count = 256,
                                               .per_token = 8,
                                               .intermediate_size = 2048,
                                               .shared = 1,
                                               .dense_layers = 3,
                                               .groups = is_glm ? 1 : 8,
                                               .kept_groups = is_glm ? 1 : 4,
                                               .scale = 2.5,
                                               .first = dense_layers(json, config.layers)});
  if (config.experts.count > 0) config.experts.balance_coefficient = 1e-4;
  config.indexer = {.heads = json.integer_or("index_n_heads", index_heads),
                    .dim = json.integer_or("index_head_dim", 128),
                    .count = json.count_or("index_topk", 2048),
                    .adjacent_pairs = is_glm};
  return config;
}

nlohmann::ordered_json sparse_keys(const ModelConfig& config, const char* architecture, DType dtype) {
  auto json = latent_keys(config, architecture, dtype);
  json["index_head_dim"] = config.indexer->dim;
  json["index_n_heads"] = config.indexer->heads;
  json["index_topk"] = config.indexer->count;
  write_prediction(json, config);
  write_sigmoid_experts(json, config.experts);
  if (config.experts.count > 0) {  // transformers does not read these, llama.cpp's converter does
    json["scoring_func"] = "sigmoid";
    json["topk_method"] = "noaux_tc";
  }
  json["rope_interleave"] = true;
  json["indexer_rope_interleave"] = config.indexer->adjacent_pairs;
  return json;
}

ModelConfig read_v32(const std::string& text, const std::string& where) {
  const ConfigJson json(text, where);
  return read_sparse(json, kDeepseekV32, {.max_positions = 163840}, 64);
}

std::string write_v32(const ModelConfig& config, DType dtype) {
  return dump_json(sparse_keys(config, "DeepseekV32ForCausalLM", dtype), 2) + "\n";
}

// Whether each layer has an indexer: a list, a pattern such as "FSSF", or, as in the class, every `freq`-th layer, of
// which the first offset - 1 + freq … have one.
std::vector<std::string> indexer_types(const ConfigJson& json, int64_t layers) {
  if (json.has("indexer_types")) return json.texts("indexer_types");
  std::vector<std::string> types;
  if (json.is_text("index_topk_pattern")) {
    for (const char kind : json.text_or("index_topk_pattern", "")) {
      if (kind != 'F' && kind != 'S')
        json.reject("index_topk_pattern", fmt::format("\"{}\"", kind), "letters F (full) and S (shared)");
      types.emplace_back(kind == 'F' ? kFull : kShared);
    }
    return types;
  }
  if (json.has("index_topk_pattern")) return json.texts("index_topk_pattern");
  const int64_t period = std::max<int64_t>(json.count_or("index_topk_freq", 1), 1);
  const int64_t offset = json.count_or("index_skip_topk_offset", 2);
  for (int64_t i = 0; i < layers; ++i)
    types.emplace_back(std::max<int64_t>(i - offset + 1, 0) % period == 0 ? kFull : kShared);
  return types;
}

ModelConfig read_glm(const std::string& text, const std::string& where) {
  const ConfigJson json(text, where);
  ModelConfig config = read_sparse(json, kGlmDsa, {.norm_eps = 1e-5, .max_positions = 202752}, 32);
  const std::vector<std::string> types = indexer_types(json, config.layers);
  const char* const key =
      json.has("indexer_types") || !json.has("index_topk_pattern") ? "indexer_types" : "index_topk_pattern";
  if (std::ssize(types) != config.layers)
    json.reject(key, fmt::format("{} entries", types.size()),
                fmt::format("one for each of {} layers", config.layers));
  for (size_t i = 0; i < types.size(); ++i) {
    if (types[i] != kFull && types[i] != kShared)
      json.reject(key, fmt::format("\"{}\" for layer {}", types[i], i), "\"full\" or \"shared\"");
    config.without_indexer.push_back(types[i] == kShared);
  }
  if (config.without_indexer.front())
    json.reject(key, "\"shared\" for layer 0",
                "\"full\": a shared layer takes the choice of a layer before it");
  return config;
}

std::string write_glm(const ModelConfig& config, DType dtype) {
  auto json = sparse_keys(config, "GlmMoeDsaForCausalLM", dtype);
  auto types = nlohmann::ordered_json::array();
  for (int64_t i = 0; i < config.layers; ++i) types.push_back(config.has_own_indexer(i) ? kFull : kShared);
  json["indexer_types"] = types;
  return dump_json(json, 2) + "\n";
}

constexpr PresetRow kV32Presets[] = {
    {"dsa-30m", "DeepSeek-V3.2's attention, dense, each token to 64 keys", 512, 8, 8, 8, 0, 1408, 8192, 4096,
     R"("q_lora_rank":256,"kv_lora_rank":128,"qk_nope_head_dim":64,"qk_rope_head_dim":32,"v_head_dim":64,
        "first_k_dense_replace":8,"index_n_heads":4,"index_head_dim":64,"index_topk":64,
        "tie_word_embeddings":true)"},
    {"deepseek-v3.2", "DeepSeek-V3.2 671B-A37B, each token to 2,048 keys", 7168, 61, 128, 128, 0, 18432,
     129280, 163840,
     R"("rope_theta":10000,"rope_scaling":{"type":"yarn","factor":40,"original_max_position_embeddings":4096,
        "beta_fast":32,"beta_slow":1,"mscale":1.0,"mscale_all_dim":1.0},"bos_token_id":0,"eos_token_id":1)"},
};
constexpr PresetRow kGlmPresets[] = {
    {"glm-5", "GLM-5 744B-A40B, each token to 2,048 keys", 6144, 78, 64, 64, 0, 12288, 154880, 202752,
     R"("q_lora_rank":2048,"qk_nope_head_dim":192,"v_head_dim":256,"rope_theta":1e6,"bos_token_id":0,
        "eos_token_id":[154820,154827,154829])"},
};

}  // namespace

const Family kDeepseekV32{
    .name = "deepseek3.2",
    .model_type = "deepseek_v32",
    .build = build_stack,
    .read = read_v32,
    .write = write_v32,
    .tensors = latent_tensors,
    .ignored = ignores_prediction,
    .optional_prefix = "model.",
    .size_keys = {.head_dim = nullptr},
    .presets = kV32Presets,
};
const Family kGlmDsa{
    .name = "glm-5",
    .model_type = "glm_moe_dsa",
    .build = build_stack,
    .read = read_glm,
    .write = write_glm,
    .tensors = latent_tensors,
    .ignored = ignores_prediction,
    .optional_prefix = "model.",
    .size_keys = {.head_dim = nullptr},
    .presets = kGlmPresets,
};

}  // namespace strata::models
