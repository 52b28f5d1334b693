// DeepSeek-V2 and V3 (Moonlight and Kimi-K2 are of the latter's shape): Llama with latent attention and,
// after the first layers, experts with a shared one. Rotated pairs are adjacent. V2 chooses experts by
// softmax, V3 by sigmoid scores and a bias.

#include "models/deepseek.h"

#include "base/json.h"
#include "models/decoder.h"
#include "models/families.h"
#include "models/llama_layout.h"
#include "models/sigmoid_experts.h"

namespace strata::models {
namespace {

// q_lora_rank: null means no query latent; absent means the class's default, 1536.
int64_t query_rank(const ConfigJson& json) {
  return json.real_or_none("q_lora_rank", 1536) == 0 ? 0 : json.integer_or("q_lora_rank", 1536);
}

}  // namespace

ModelConfig read_latent_keys(const ConfigJson& json, const Family& family, const LlamaDefaults& defaults) {
  ModelConfig config = read_llama_keys(json, family, defaults);
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
  return config;
}

nlohmann::ordered_json latent_keys(const ModelConfig& config, const char* architecture, DType dtype) {
  auto json = llama_keys(config, architecture, dtype);
  const layers::LatentDims& dims = *config.latent;
  json["q_lora_rank"] = dims.query_rank > 0 ? nlohmann::ordered_json(dims.query_rank) : nullptr;
  json["kv_lora_rank"] = dims.rank;
  json["qk_nope_head_dim"] = dims.plain_dim;
  json["qk_rope_head_dim"] = dims.rotary_dim;
  json["v_head_dim"] = dims.value_dim;
  json["attention_bias"] = config.out_bias;
  return json;
}

std::vector<TensorRow> latent_tensors(const ModelConfig& config) {
  return llama_tensors_with_experts(config, {.shared = "shared_experts"});
}

namespace {

// Softmax scores, unchanged; a group's score is its best expert's.
Experts read_softmax_experts(const ConfigJson& json) {
  using Route = ops::RouteAttrs;
  const int64_t first = json.count_or("first_k_dense_replace", 0);
  if (first >= json.integer("num_hidden_layers")) return {};
  const std::string method = json.text_or("topk_method", "greedy");
  const bool grouped = method == "group_limited_greedy";
  if (!grouped) json.require_equal("topk_method", "greedy");
  json.require_equal("scoring_func", "softmax");
  json.require_equal("norm_topk_prob", false);
  const int64_t width = json.integer_or("moe_intermediate_size", 1407);
  return {.count = json.integer_or("n_routed_experts", json.integer_or("num_experts", 64)),
          .intermediate_size = width,
          .route = {.k = json.integer_or("num_experts_per_tok", 6),
                    .scale = json.real_or("routed_scaling_factor", 1),
                    .groups = grouped ? json.integer("n_group") : 1,
                    .kept_groups = grouped ? json.integer("topk_group") : 1,
                    .group_score = Route::GroupScore::kBest},
          .shared_size = width * json.integer_or("n_shared_experts", 2),
          .first = first,
          .balance_coefficient = json.real_or("aux_loss_alpha", 0.001)};
}

void write_softmax_experts(nlohmann::ordered_json& json, const Experts& experts) {
  if (experts.count == 0) {
    json["first_k_dense_replace"] = json["num_hidden_layers"];
    return;
  }
  const bool grouped = experts.route.groups > 1;
  json["aux_loss_alpha"] = experts.balance_coefficient;
  json["first_k_dense_replace"] = experts.first;
  json["moe_intermediate_size"] = experts.intermediate_size;
  json["n_group"] = grouped ? nlohmann::ordered_json(experts.route.groups) : nullptr;
  json["n_routed_experts"] = experts.count;
  json["n_shared_experts"] = experts.shared_size / experts.intermediate_size;
  json["norm_topk_prob"] = false;
  json["num_experts_per_tok"] = experts.route.k;
  json["routed_scaling_factor"] = experts.route.scale;
  json["scoring_func"] = "softmax";
  json["topk_group"] = grouped ? nlohmann::ordered_json(experts.route.kept_groups) : nullptr;
  json["topk_method"] = grouped ? "group_limited_greedy" : "greedy";
}

ModelConfig read_v2(const std::string& text, const std::string& where) {
  const ConfigJson json(text, where);
  ModelConfig config = read_latent_keys(json, kDeepseekV2, {.max_positions = 2048});
  config.adjacent_rotary_pairs = true;
  config.ffn_bias = json.boolean_or("mlp_bias", false);
  config.experts = read_softmax_experts(json);
  return config;
}

std::string write_v2(const ModelConfig& config, DType dtype) {
  auto json = latent_keys(config, "DeepseekV2ForCausalLM", dtype);
  json["mlp_bias"] = config.ffn_bias;
  write_softmax_experts(json, config.experts);
  return dump_json(json, 2) + "\n";
}

ModelConfig read_v3(const std::string& text, const std::string& where) {
  const ConfigJson json(text, where);
  ModelConfig config = read_latent_keys(json, kDeepseekV3, {.max_positions = 4096});
  config.adjacent_rotary_pairs = json.boolean_or("rope_interleave", true);
  read_prediction(json, config);
  json.require_equal("scoring_func", "sigmoid");
  json.require_equal("topk_method", "noaux_tc");
  config.experts = read_sigmoid_experts(json, {.count = 256,
                                               .per_token = 8,
                                               .intermediate_size = 2048,
                                               .shared = 1,
                                               .dense_layers = 3,
                                               .groups = 8,
                                               .kept_groups = 4,
                                               .scale = 2.5});
  // As in V3's training; its config.json has another, unused value.
  if (config.experts.count > 0) config.experts.balance_coefficient = 1e-4;
  return config;
}

// Kimi K2 has the shape of DeepSeek-V3, under its own name.
ModelConfig read_kimi(const std::string& text, const std::string& where) {
  ModelConfig config = read_v3(text, where);
  config.family = &kKimiK2;
  return config;
}

std::string write_v3(const ModelConfig& config, DType dtype) {
  auto json = latent_keys(config, "DeepseekV3ForCausalLM", dtype);
  json["rope_interleave"] = config.adjacent_rotary_pairs;
  write_prediction(json, config);
  write_sigmoid_experts(json, config.experts);
  if (config.experts.count > 0) {  // transformers does not read these, llama.cpp's converter does
    json["scoring_func"] = "sigmoid";
    json["topk_method"] = "noaux_tc";
  }
  return dump_json(json, 2) + "\n";
}

constexpr PresetRow kV2Presets[] = {
    {"deepseek2-6m", "DeepSeek-V2's attention, dense", 256, 4, 4, 4, 0, 768, 4096, 2048,
     R"("q_lora_rank":null,"kv_lora_rank":128,"qk_nope_head_dim":64,"qk_rope_head_dim":32,"v_head_dim":64,
        "first_k_dense_replace":4)"},
    {"deepseek-v2-lite", "DeepSeek-V2-Lite 16B-A2.4B, 6 of 64 experts and two shared ones", 2048, 27, 16, 16,
     0, 10944, 102400, 4096,
     R"("q_lora_rank":null,"first_k_dense_replace":1,"moe_intermediate_size":1408,"n_routed_experts":64,
        "num_experts_per_tok":6,"bos_token_id":100000,"eos_token_id":100001)"},
    {"deepseek-v2", "DeepSeek-V2 236B-A21B, 6 of 160 experts and two shared ones", 5120, 60, 128, 128, 0,
     12288, 102400, 4096,
     R"("first_k_dense_replace":1,"moe_intermediate_size":1536,"n_routed_experts":160,"num_experts_per_tok":6,
        "topk_method":"group_limited_greedy","n_group":8,"topk_group":3,"routed_scaling_factor":16.0,
        "bos_token_id":100000,"eos_token_id":100001)"},
};
constexpr PresetRow kV3Presets[] = {
    {"deepseek3-6m", "DeepSeek-V3's attention, dense", 256, 4, 4, 4, 0, 768, 4096, 2048,
     R"("q_lora_rank":192,"kv_lora_rank":128,"qk_nope_head_dim":64,"qk_rope_head_dim":32,"v_head_dim":64,
        "first_k_dense_replace":4)"},
    {"deepseek3-50m", "DeepSeek-V3 small, 4 of 32 experts and a shared one", 384, 8, 6, 6, 0, 1024, 8192,
     2048,
     R"("q_lora_rank":192,"kv_lora_rank":128,"qk_nope_head_dim":64,"qk_rope_head_dim":32,"v_head_dim":64,
        "first_k_dense_replace":1,"moe_intermediate_size":144,"n_routed_experts":32,"num_experts_per_tok":4,
        "n_group":4,"topk_group":2,"tie_word_embeddings":true)"},
    {"moonlight-16b-a3b", "Moonlight 16B-A3B, 6 of 64 experts and two shared ones", 2048, 27, 16, 16, 0,
     11264, 163840, 8192,
     R"("q_lora_rank":null,"first_k_dense_replace":1,"moe_intermediate_size":1408,"n_routed_experts":64,
        "num_experts_per_tok":6,"n_shared_experts":2,"n_group":1,"topk_group":1,"routed_scaling_factor":2.446,
        "rms_norm_eps":1e-5,"rope_theta":5e4,"bos_token_id":163584,"eos_token_id":163585)"},
    {"deepseek-v3", "DeepSeek-V3 671B-A37B, 8 of 256 experts and a shared one", 7168, 61, 128, 128, 0, 18432,
     129280, 4096, R"("bos_token_id":0,"eos_token_id":1)"},
};
constexpr PresetRow kKimiPresets[] = {
    {"kimi-k2", "Kimi-K2 1T-A32B, 8 of 384 experts and a shared one", 7168, 61, 64, 64, 0, 18432, 163840,
     4096,
     R"("first_k_dense_replace":1,"n_routed_experts":384,"n_group":1,"topk_group":1,
        "routed_scaling_factor":2.827,"rope_theta":5e4,"bos_token_id":163584,"eos_token_id":163585)"},
};

}  // namespace

const Family kDeepseekV2{
    .name = "deepseek2",
    .model_type = "deepseek_v2",
    .build = build_stack,
    .read = read_v2,
    .write = write_v2,
    .tensors = latent_tensors,
    .ignored = ignores_prediction,
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
    .tensors = latent_tensors,
    .ignored = ignores_prediction,
    .optional_prefix = "model.",
    .size_keys = {.head_dim = nullptr},
    .presets = kV3Presets,
};
const Family kKimiK2{
    .name = "kimi-k2",
    .model_type = "kimi_k2",
    .build = build_stack,
    .read = read_kimi,
    .write = write_v3,
    .tensors = latent_tensors,
    .ignored = ignores_prediction,
    .optional_prefix = "model.",
    .size_keys = {.head_dim = nullptr},
    .presets = kKimiPresets,
};

}  // namespace strata::models
