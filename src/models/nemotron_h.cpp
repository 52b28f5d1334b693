// Nemotron-H and Nemotron 3: each layer is a norm and one block, by a pattern: M Mamba-2, * attention without
// positions, - a feed-forward block, E experts. Feed-forward blocks and experts have relu² and no gates; experts are chosen
// as in DeepSeek-V3, and read a latent in some models.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/json.h"
#include "models/decoder.h"
#include "models/families.h"
#include "models/hybrid.h"
#include "models/state_space_layout.h"

namespace strata::models {
namespace {

using layers::Mixer;

enum class Block : uint8_t { kStateSpace, kAttention, kFfn, kExperts };
struct BlockName {
  char letter;
  const char* name;  // in layers_block_type
  const char* old_name;
  Block block;
};
constexpr BlockName kBlocks[] = {{'M', "linear_attention", "mamba", Block::kStateSpace},
                                 {'*', "full_attention", "attention", Block::kAttention},
                                 {'-', "mlp", "mlp", Block::kFfn},
                                 {'E', "moe", "moe", Block::kExperts}};

std::vector<Block> read_blocks(const ConfigJson& json) {
  std::vector<Block> blocks;
  const auto add = [&](const char* key, const std::string& found, const char* expected, const auto& is) {
    const auto* const one = std::find_if(std::begin(kBlocks), std::end(kBlocks), is);
    if (one == std::end(kBlocks))
      json.reject(key, fmt::format("\"{}\" for layer {}", found, blocks.size()), expected);
    blocks.push_back(one->block);
  };
  const char* const key = json.has("layers_block_type") ? "layers_block_type" : "layer_types";
  for (const std::string& type : json.texts(key)) {
    add(key, type, "\"linear_attention\", \"full_attention\", \"mlp\" or \"moe\"",
        [&](const BlockName& one) { return type == one.name || type == one.old_name; });
  }
  if (!blocks.empty()) return blocks;
  for (const char letter : json.text_or("hybrid_override_pattern", "ME*-")) {
    add("hybrid_override_pattern", std::string(1, letter), "M, *, - or E",
        [&](const BlockName& one) { return letter == one.letter; });
  }
  return blocks;
}

Experts read_experts(const ConfigJson& json, const std::vector<Block>& blocks) {
  using Route = ops::RouteAttrs;
  if (std::find(blocks.begin(), blocks.end(), Block::kExperts) == blocks.end()) return {};
  Experts experts{.count = json.integer_or("n_routed_experts", json.integer_or("num_local_experts", 8)),
                  .intermediate_size = json.integer_or("moe_intermediate_size", 7688),
                  .route = {.k = json.integer_or("num_experts_per_tok", 2),
                            .score = Route::Score::kSigmoid,
                            .normalize = json.boolean_or("norm_topk_prob", true),
                            .normalize_eps = 1e-20,
                            .scale = json.real_or("routed_scaling_factor", 1),
                            .groups = json.integer_or("n_group", 1),
                            .kept_groups = json.integer_or("topk_group", 1),
                            .group_score = Route::GroupScore::kBestTwo},
                  .router_bias = true,
                  .bias_rate = 1e-3,
                  .latent_size = json.count_or("moe_latent_size", 0),
                  .shared_size = json.integer_or("moe_shared_expert_intermediate_size", 7688),
                  .balance_coefficient = 1e-4};
  for (size_t i = 0; i < blocks.size(); ++i)
    if (blocks[i] != Block::kExperts) experts.dense.push_back(static_cast<int64_t>(i));
  return experts;
}

ModelConfig read(const std::string& text, const std::string& where) {
  const ConfigJson json(text, where);
  ModelConfig config;
  config.family = &kNemotronH;
  config.vocab_size = json.integer("vocab_size");
  config.hidden_size = json.integer("hidden_size");
  const std::vector<Block> blocks = read_blocks(json);
  config.layers = static_cast<int64_t>(blocks.size());
  if (const int64_t layers = json.integer_or("num_hidden_layers", config.layers); layers != config.layers) {
    json.reject("num_hidden_layers", std::to_string(layers),
                fmt::format("{}, the length of the pattern of layers", config.layers));
  }
  config.heads = json.integer_or("num_attention_heads", 32);
  config.kv_heads = json.integer_or("num_key_value_heads", 8);
  config.head_dim = json.integer_or("head_dim", 128);
  config.intermediate_size = json.integer_or("intermediate_size", 21504);
  config.max_positions = json.integer_or("max_position_embeddings", 4096);
  config.positions = Positions::kAbsent;
  config.tied = json.boolean_or("tie_word_embeddings", false);
  config.norm_eps = json.real_or("layer_norm_epsilon", json.real_or("norm_eps", 1e-5));
  config.init_std = json.real_or("initializer_range", 0.02);
  config.activation = json.activation("mlp_hidden_act", "relu2");
  config.gated = false;
  config.qkv_bias = config.out_bias = json.boolean_or("attention_bias", false);
  config.ffn_bias = json.boolean_or("mlp_bias", false);
  config.bos_id = json.optional_id("bos_token_id", 1);
  config.eos_id = json.optional_id("eos_token_id", 2);
  json.require_equal("sliding_window", nullptr);
  json.require_equal("mamba_hidden_act", "silu");
  json.require_equal("n_shared_experts", 1);
  json.require_equal("use_bias", false);
  for (const Block block : blocks) {
    config.layer_kinds.push_back(block == Block::kStateSpace  ? layers::LayerKind{Mixer::kStateSpace, false}
                                 : block == Block::kAttention ? layers::LayerKind{Mixer::kAttention, false}
                                                              : layers::LayerKind{Mixer::kAbsent, true});
  }
  config.experts = read_experts(json, blocks);
  if (config.ffn_bias && config.experts.count > 0) json.require_equal("mlp_bias", false);
  layers::StateSpaceDims dims{
      .heads = json.integer_or("mamba_num_heads", 128),
      .head_dim = json.integer_or("mamba_head_dim", 64),
      .groups = json.integer_or("n_groups", json.integer_or("mamba_n_groups", 8)),
      .state_dim = json.integer_or("ssm_state_size", 128),
      .taps = json.integer_or("conv_kernel", json.integer_or("mamba_d_conv", 4)),
      .convolution_bias = json.boolean_or("use_conv_bias", json.boolean_or("mamba_conv_bias", true)),
      .bias = json.boolean_or("mamba_proj_bias", false),
      .norm_eps = config.norm_eps,
      .least_step = json.real_or("time_step_min", json.real_or("mamba_dt_min", 1e-3)),
      .most_step = json.real_or("time_step_max", json.real_or("mamba_dt_max", 0.1)),
      .step_floor = json.real_or("time_step_floor", json.real_or("mamba_dt_init_floor", 1e-4))};
  dims.least_dt = dims.least_step;  // the class ignores time_step_limit
  if (json.boolean_or("rescale_prenorm_residual", true))
    dims.out_std = 1 / std::sqrt(3 * static_cast<double>(dims.width()) * static_cast<double>(config.layers));
  config.state_space = dims;
  return config;
}

Block block_of(const ModelConfig& config, int64_t layer) {
  const layers::LayerKind kind = config.kind(layer);
  if (kind.mixer == Mixer::kStateSpace) return Block::kStateSpace;
  if (kind.mixer == Mixer::kAttention) return Block::kAttention;
  return config.experts.at(layer) ? Block::kExperts : Block::kFfn;
}

std::string write(const ModelConfig& config, DType dtype) {
  const layers::StateSpaceDims& dims = config.state_space.value();
  nlohmann::ordered_json json;
  json["architectures"] = {"NemotronHForCausalLM"};
  json["model_type"] = "nemotron_h";
  json["attention_bias"] = config.qkv_bias;
  json["attention_dropout"] = 0.0;
  json["bos_token_id"] = id_json(config.bos_id);
  json["eos_token_id"] = id_json(config.eos_id);
  json["chunk_size"] = 128;
  json["conv_kernel"] = dims.taps;
  json["expand"] = 2;
  json["head_dim"] = config.head_dim;
  json["hidden_dropout"] = 0.0;
  json["hidden_size"] = config.hidden_size;
  std::string pattern;
  for (int64_t i = 0; i < config.layers; ++i) {
    for (const BlockName& one : kBlocks)
      if (one.block == block_of(config, i)) pattern += one.letter;
  }
  json["hybrid_override_pattern"] = pattern;
  json["initializer_range"] = config.init_std;
  json["intermediate_size"] = config.intermediate_size;
  json["layer_norm_epsilon"] = config.norm_eps;
  json["mamba_head_dim"] = dims.head_dim;
  json["mamba_hidden_act"] = "silu";
  json["mamba_num_heads"] = dims.heads;
  json["mamba_proj_bias"] = dims.bias;
  json["max_position_embeddings"] = config.max_positions;
  json["mlp_bias"] = config.ffn_bias;
  json["mlp_hidden_act"] = name_of(config.activation);
  json["n_groups"] = dims.groups;
  const Experts& experts = config.experts;
  if (experts.count > 0) {
    json["moe_intermediate_size"] = experts.intermediate_size;
    json["moe_latent_size"] = experts.latent_size > 0 ? nlohmann::ordered_json(experts.latent_size) : nullptr;
    json["moe_shared_expert_intermediate_size"] = experts.shared_size;
    json["n_group"] = experts.route.groups;
    json["n_routed_experts"] = experts.count;
    json["n_shared_experts"] = 1;
    json["norm_topk_prob"] = experts.route.normalize;
    json["num_experts_per_tok"] = experts.route.k;
    json["routed_scaling_factor"] = experts.route.scale;
    json["topk_group"] = experts.route.kept_groups;
  }
  json["num_attention_heads"] = config.heads;
  json["num_hidden_layers"] = config.layers;
  json["num_key_value_heads"] = config.kv_heads;
  json["rescale_prenorm_residual"] = dims.out_std > 0;
  json["residual_in_fp32"] = false;
  json["sliding_window"] = nullptr;
  json["ssm_state_size"] = dims.state_dim;
  json["tie_word_embeddings"] = config.tied;
  json["time_step_floor"] = dims.step_floor;
  json["time_step_max"] = dims.most_step;
  json["time_step_min"] = dims.least_step;
  json["torch_dtype"] = torch_name_of(dtype);
  json["use_bias"] = false;
  json["use_cache"] = true;
  json["use_conv_bias"] = dims.convolution_bias;
  json["vocab_size"] = config.vocab_size;
  return dump_json(json, 2) + "\n";
}

class Tensors {
 public:
  explicit Tensors(const ModelConfig& config) : config_(config) {}

  std::vector<TensorRow> all() {
    list_.push_back({"backbone.embeddings.weight", "embedding.weight", 0, config_.vocab_size});
    for (int64_t i = 0; i < config_.layers; ++i) {
      file_ = "backbone.layers." + std::to_string(i) + ".";
      ours_ = "layers." + std::to_string(i) + ".";
      const Block block = block_of(config_, i);
      const bool is_mixer = block == Block::kStateSpace || block == Block::kAttention;
      list_.push_back({file_ + "norm.weight",
                       ours_ + (is_mixer ? "attention_norm.weight" : "ffn_norm.weight"), 0,
                       config_.hidden_size});
      file_ += "mixer.";
      add_block(block);
    }
    list_.push_back({"backbone.norm_f.weight", "final_norm.weight", 0, config_.hidden_size});
    if (!config_.tied) list_.push_back({"lm_head.weight", "head.weight", 0, config_.vocab_size});
    return std::move(list_);
  }

 private:
  void add(const std::string& name, const std::string& parameter, int64_t row, int64_t rows, bool bias) {
    list_.push_back({file_ + name + ".weight", ours_ + parameter + ".weight", row, rows});
    if (bias) list_.push_back({file_ + name + ".bias", ours_ + parameter + ".bias", row, rows});
  }

  void add_block(Block block) {
    const int64_t width = config_.hidden_size, q = config_.q_width(), kv = config_.kv_width();
    switch (block) {
      case Block::kStateSpace:
        add_state_space_rows(config_.state_space.value(), width, file_, ours_ + "mixer.", list_);
        break;
      case Block::kAttention:
        add("q_proj", "attention.qkv", 0, q, config_.qkv_bias);
        add("k_proj", "attention.qkv", q, kv, config_.qkv_bias);
        add("v_proj", "attention.qkv", q + kv, kv, config_.qkv_bias);
        add("o_proj", "attention.out", 0, width, config_.out_bias);
        break;
      case Block::kFfn:
        add("up_proj", "ffn.up", 0, config_.intermediate_size, config_.ffn_bias);
        add("down_proj", "ffn.down", 0, width, config_.ffn_bias);
        break;
      case Block::kExperts:
        add_experts();
        break;
    }
  }

  void add_experts() {
    const Experts& experts = config_.experts;
    const int64_t read = experts.latent_size > 0 ? experts.latent_size : config_.hidden_size;
    add("gate", "ffn.router", 0, experts.count, false);
    list_.push_back({file_ + "gate.e_score_correction_bias", ours_ + "ffn.router.bias", 0, experts.count});
    for (int64_t e = 0; e < experts.count; ++e) {
      const std::string expert = "experts." + std::to_string(e) + ".";
      add(expert + "up_proj", "ffn.experts.up", e * experts.intermediate_size, experts.intermediate_size,
          false);
      add(expert + "down_proj", "ffn.experts.down", e * read, read, false);
    }
    add("shared_experts.up_proj", "ffn.shared.up", 0, experts.shared_size, false);
    add("shared_experts.down_proj", "ffn.shared.down", 0, config_.hidden_size, false);
    if (experts.latent_size == 0) return;
    add("fc1_latent_proj", "ffn.latent_in", 0, experts.latent_size, false);
    add("fc2_latent_proj", "ffn.latent_out", 0, config_.hidden_size, false);
  }

  const ModelConfig& config_;
  std::vector<TensorRow> list_ = {};
  std::string file_ = {}, ours_ = {};
};

std::vector<TensorRow> tensors(const ModelConfig& config) {
  return Tensors(config).all();
}

bool ignored(const ModelConfig& config, std::string_view name) {
  return (config.tied && name == "lm_head.weight") || name.starts_with("mtp.");
}

constexpr PresetRow kPresets[] = {
    {"nemotron-h-30m", "small, Mamba-2, attention and feed-forward blocks", 512, 16, 8, 2, 64, 1536, 8192,
     4096,
     R"("hybrid_override_pattern":"M-M-M*-M-M-M*-M-","mamba_num_heads":16,"mamba_head_dim":64,"n_groups":2,
        "tie_word_embeddings":true)"},
    {"nemotron-3-nano-30b-a3b", "Nemotron 3 Nano 30B-A3B, 6 of 128 experts and a shared one", 2688, 52, 32, 2,
     128, 1856, 131072, 262144,
     R"("hybrid_override_pattern":"MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME","mamba_num_heads":64,
        "n_routed_experts":128,"num_experts_per_tok":6,"moe_intermediate_size":1856,
        "moe_shared_expert_intermediate_size":3712,"routed_scaling_factor":2.5)"},
};

}  // namespace

const Family kNemotronH{
    .name = "nemotron-h",
    .model_type = "nemotron_h",
    .build = build_stack,
    .read = read,
    .write = write,
    .tensors = tensors,
    .ignored = ignored,
    .optional_prefix = "backbone.",
    .presets = kPresets,
};

}  // namespace strata::models
