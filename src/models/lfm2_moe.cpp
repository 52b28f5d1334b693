// LFM2-8B-A1B: short gated convolutions in most layers, attention with norms of queries and keys by head in the others;
// after the first layers experts chosen by sigmoid scores and a bias.

#include <algorithm>

#include "base/json.h"
#include "models/decoder.h"
#include "models/families.h"
#include "models/hybrid.h"
#include "models/llama_layout.h"

namespace strata::models {
namespace {

constexpr KindName kKinds[] = {{"conv", {layers::Mixer::kShortConvolution}},
                               {"full_attention", {layers::Mixer::kAttention}}};

ModelConfig read(const std::string& text, const std::string& where) {
  using Route = ops::RouteAttrs;
  const ConfigJson json(text, where);
  ModelConfig config = read_llama_keys(json, kLfm2Moe,
                                       {.tied = true,
                                        .norm_eps_key = "norm_eps",
                                        .norm_eps = 1e-5,
                                        .max_positions = 128000,
                                        .rope_theta = 1e6,
                                        .pad_id = 0});
  config.kv_heads = json.integer_or("num_key_value_heads", 8);
  config.bos_id = json.optional_id("bos_token_id", 1);
  config.eos_id = json.optional_id("eos_token_id", 2);
  config.tied = json.boolean_or("tie_embedding", config.tied);
  config.qk_norm = layers::AttentionSpec::QkNorm::kHead;
  if (!json.has("layer_types")) json.reject("layer_types", "no entries", "one for each layer");
  config.layer_kinds = read_kinds(json, config.layers, kKinds, 1, layers::Mixer::kShortConvolution);
  config.short_convolution = layers::ShortConvolutionDims{.taps = json.integer_or("conv_L_cache", 3),
                                                          .bias = json.boolean_or("conv_bias", false)};
  const int64_t dense = json.count_or("num_dense_layers", 2);
  if (dense >= config.layers) return config;
  config.experts = {.count = json.integer_or("num_experts", 32),
                    .intermediate_size = json.integer_or("moe_intermediate_size", 1792),
                    .route = {.k = json.integer_or("num_experts_per_tok", 4),
                              .score = Route::Score::kSigmoid,
                              .normalize = json.boolean_or("norm_topk_prob", true),
                              .normalize_eps = 1e-6,
                              .scale = json.real_or("routed_scaling_factor", 1)},
                    .router_bias = json.boolean_or("use_expert_bias", true),
                    .bias_rate = 1e-3,
                    .first = dense,
                    .balance_coefficient = 1e-4};
  return config;
}

std::string write(const ModelConfig& config, DType dtype) {
  auto json = llama_keys(config, "Lfm2MoeForCausalLM", dtype, {.norm_eps_key = "norm_eps", .norm_eps = 1e-5});
  const Experts& experts = config.experts;
  json["conv_L_cache"] = config.short_convolution->taps;
  json["conv_bias"] = config.short_convolution->bias;
  json["layer_types"] = kinds_json(config, kKinds);
  json["num_dense_layers"] = experts.count > 0 ? experts.first : config.layers;
  if (experts.count > 0) {
    json["moe_intermediate_size"] = experts.intermediate_size;
    json["norm_topk_prob"] = experts.route.normalize;
    json["num_experts"] = experts.count;
    json["num_experts_per_tok"] = experts.route.k;
    json["routed_scaling_factor"] = experts.route.scale;
    json["use_expert_bias"] = experts.router_bias;
  }
  return dump_json(json, 2) + "\n";
}

std::vector<TensorRow> tensors(const ModelConfig& config) {
  const int64_t width = config.hidden_size, q = config.q_width(), kv = config.kv_width();
  const layers::ShortConvolutionDims& dims = config.short_convolution.value();
  const Experts& experts = config.experts;
  std::vector<TensorRow> list{{"model.embed_tokens.weight", "embedding.weight", 0, config.vocab_size}};
  for (int64_t i = 0; i < config.layers; ++i) {
    const std::string file = "model.layers." + std::to_string(i) + ".",
                      ours = "layers." + std::to_string(i) + ".";
    const auto add = [&](const std::string& name, const std::string& parameter, int64_t row, int64_t rows) {
      list.push_back({file + name + ".weight", ours + parameter + ".weight", row, rows});
    };
    const auto add_ffn = [&](const std::string& name, const std::string& parameter, int64_t number,
                             int64_t size) {
      add(name + ".w1", parameter + ".up", 2 * number * size, size);
      add(name + ".w3", parameter + ".up", (2 * number + 1) * size, size);
      add(name + ".w2", parameter + ".down", number * width, width);
    };
    add("operator_norm", "attention_norm", 0, width);
    add("ffn_norm", "ffn_norm", 0, width);
    if (config.has_attention(i)) {
      add("self_attn.q_proj", "attention.qkv", 0, q);
      add("self_attn.k_proj", "attention.qkv", q, kv);
      add("self_attn.v_proj", "attention.qkv", q + kv, kv);
      add("self_attn.out_proj", "attention.out", 0, width);
      add("self_attn.q_layernorm", "attention.q_norm", 0, config.head_dim);
      add("self_attn.k_layernorm", "attention.k_norm", 0, config.head_dim);
    } else {
      for (const char* kind : {".weight", ".bias"}) {
        if (kind == std::string_view(".bias") && !dims.bias) break;
        int64_t first = 0;
        for (const char* part : {"before", "after", "x"}) {
          list.push_back({.file_name = file + "conv.in_proj" + kind,
                          .parameter = ours + "mixer." + part + kind,
                          .rows = width,
                          .part = {first, width, 3 * width}});
          first += width;
        }
        list.push_back({file + "conv.out_proj" + kind, ours + "mixer.out" + kind, 0, width});
      }
      list.push_back({.file_name = file + "conv.conv.weight",
                      .parameter = ours + "mixer.convolution.weight",
                      .rows = width,
                      .shape = {width, 1, dims.taps}});
      if (dims.bias) list.push_back({file + "conv.conv.bias", ours + "mixer.convolution.bias", 0, width});
    }
    if (!experts.at(i)) {
      add_ffn("feed_forward", "ffn", 0, config.intermediate_size);
      continue;
    }
    add_router_rows(experts, file + "feed_forward.gate", file + "feed_forward.gate_groups", ours, list);
    if (experts.router_bias)
      list.push_back({file + "feed_forward.expert_bias", ours + "ffn.router.bias", 0, experts.count});
    for (int64_t e = 0; e < experts.count; ++e)
      add_ffn("feed_forward.experts." + std::to_string(e), "ffn.experts", e, experts.intermediate_size);
  }
  list.push_back({"model.embedding_norm.weight", "final_norm.weight", 0, width});
  if (!config.tied) list.push_back({"lm_head.weight", "head.weight", 0, config.vocab_size});
  return list;
}

constexpr PresetRow kPresets[] = {
    {"lfm2-8b-a1b", "LFM2 8B-A1B, 4 of 32 experts", 2048, 24, 32, 8, 64, 7168, 65536, 128000,
     R"("layer_types":["conv","conv","full_attention","conv","conv","conv","full_attention","conv","conv","conv",
        "full_attention","conv","conv","conv","full_attention","conv","conv","conv","full_attention","conv","conv",
        "full_attention","conv","conv"],"bos_token_id":1,"eos_token_id":7)"},
};

}  // namespace

const Family kLfm2Moe{
    .name = "lfm2-moe",
    .model_type = "lfm2_moe",
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
