// gpt-oss: experts with biases and a clamped gate, a router with a bias, a sink a head, windows in every
// other layer, biases of all projections of attention, YaRN whose ramp need not end at whole pairs.

#include <cmath>

#include "base/json.h"
#include "models/decoder.h"
#include "models/families.h"
#include "models/llama_layout.h"

namespace strata::models {
namespace {

constexpr LlamaDefaults kDefaults{.norm_eps = 1e-5, .max_positions = 131072, .rope_theta = 150000};

constexpr double kFactor = 32;
const ops::RopeScaling kClassRope{.kind = ops::RopeScaling::Kind::kYarn,
                                  .factor = kFactor,
                                  .original_positions = 4096,
                                  .beta_fast = 32,
                                  .beta_slow = 1,
                                  .whole_pairs = false,
                                  .attention_factor = 0.1 * std::log(kFactor) + 1};

ModelConfig read(const std::string& text, const std::string& where) {
  const ConfigJson json(text, where);
  ModelConfig config = read_llama_keys(json, kGptOss, kDefaults);
  json.require_equal("hidden_act", "silu");
  config.head_dim = json.integer_or("head_dim", 64);
  config.qkv_bias = config.out_bias = json.boolean_or("attention_bias", true);
  config.sinks = true;
  // Published models state their scaling; the class has a default when config.json does not.
  if (!json.has("rope_parameters") && !json.has("rope_scaling")) {
    const double theta = config.rope.theta;
    config.rope = kClassRope;
    config.rope.theta = theta;
  }
  config.sliding_window = {.size = static_cast<int64_t>(json.real_or_none("sliding_window", 128)),
                           .period = 2};
  json.read_layer_types(config.layers, config.sliding_window);
  config.experts = {.count = json.integer_or("num_local_experts", json.integer_or("num_experts", 128)),
                    .intermediate_size = config.intermediate_size,
                    .route = {.k = json.integer_or("num_experts_per_tok", 4), .normalize = true},
                    .biases = true,
                    .clamp = {json.real_or("swiglu_alpha", 1.702), json.real_or("swiglu_limit", 7)},
                    .balance_coefficient = json.real_or("router_aux_loss_coef", 0.001)};
  return config;
}

std::string write(const ModelConfig& config, DType dtype) {
  auto json = llama_keys(config, "GptOssForCausalLM", dtype, kDefaults);
  // Null means the class's default scaling.
  if (config.rope.kind == ops::RopeScaling::Kind::kUnscaled)
    json["rope_scaling"] = {{"rope_type", "default"}};
  json["attention_bias"] = config.qkv_bias;
  json["layer_types"] = layer_types_json(config);
  json["sliding_window"] =
      config.sliding_window.size > 0 ? nlohmann::ordered_json(config.sliding_window.size) : nullptr;
  json["num_local_experts"] = config.experts.count;
  json["num_experts_per_tok"] = config.experts.route.k;
  json["output_router_logits"] = false;
  json["router_aux_loss_coef"] = config.experts.balance_coefficient;
  json["swiglu_alpha"] = config.experts.clamp.alpha;
  json["swiglu_limit"] = config.experts.clamp.limit;
  return dump_json(json, 2) + "\n";
}

std::vector<TensorRow> tensors(const ModelConfig& config) {
  return llama_tensors_with_experts(config, {.router = "router", .fused = ExpertNames::Fused::kPairs});
}

constexpr PresetRow kPresets[] = {
    {"gpt-oss-20b", "gpt-oss 20B, 4 of 32 experts", 2880, 24, 64, 8, 64, 2880, 201088, 131072,
     R"("num_local_experts":32,"bos_token_id":199998,"eos_token_id":200002,"pad_token_id":199999,
        "rope_scaling":{"rope_type":"yarn","factor":32,"beta_fast":32,"beta_slow":1,"truncate":false,
        "original_max_position_embeddings":4096})"},
    {"gpt-oss-120b", "gpt-oss 120B, 4 of 128 experts", 2880, 36, 64, 8, 64, 2880, 201088, 131072,
     R"("num_local_experts":128,"bos_token_id":199998,"eos_token_id":200002,"pad_token_id":199999,
        "rope_scaling":{"rope_type":"yarn","factor":32,"beta_fast":32,"beta_slow":1,"truncate":false,
        "original_max_position_embeddings":4096})"},
};

}  // namespace

const Family kGptOss{
    .name = "gpt-oss",
    .model_type = "gpt_oss",
    .build = build_stack,
    .read = read,
    .write = write,
    .tensors = tensors,
    .ignored = llama_ignores,
    .optional_prefix = "model.",
    .presets = kPresets,
};

}  // namespace strata::models
