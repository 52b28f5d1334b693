// Mamba-2: only state spaces, no attention and no feed-forward blocks.

#include <cmath>

#include "base/json.h"
#include "models/decoder.h"
#include "models/families.h"
#include "models/hybrid.h"
#include "models/state_space_layout.h"

namespace strata::models {
namespace {

ModelConfig read(const std::string& text, const std::string& where) {
  const ConfigJson json(text, where);
  ModelConfig config;
  config.family = &kMamba2;
  config.vocab_size = json.integer("vocab_size");
  config.hidden_size = json.integer("hidden_size");
  config.layers = json.integer("num_hidden_layers");
  config.heads = config.kv_heads = config.head_dim = config.intermediate_size = 1;  // no layer reads them
  config.positions = Positions::kAbsent;
  config.max_positions = kMostIds;
  config.tied = json.boolean_or("tie_word_embeddings", false);
  config.norm_eps = json.real_or("layer_norm_epsilon", 1e-5);
  config.init_std = json.real_or("initializer_range", 0.1);
  config.bos_id = json.optional_id("bos_token_id", 0);
  config.eos_id = json.optional_id("eos_token_id", 2);
  config.pad_id = json.optional_id("pad_token_id", 1);
  if (config.pad_id && *config.pad_id >= config.vocab_size) config.pad_id = std::nullopt;
  json.require_equal("hidden_act", "silu");
  config.layer_kinds.assign(static_cast<size_t>(config.layers), {layers::Mixer::kStateSpace, false});
  layers::StateSpaceDims dims{.heads = json.integer_or("num_heads", 128),
                              .head_dim = json.integer_or("head_dim", 64),
                              .groups = json.integer_or("n_groups", 8),
                              .state_dim = json.integer_or("state_size", 128),
                              .taps = json.integer_or("conv_kernel", 4),
                              .convolution_bias = json.boolean_or("use_conv_bias", true),
                              .bias = json.boolean_or("use_bias", false),
                              .norm_eps = config.norm_eps,
                              .least_step = json.real_or("time_step_min", 1e-3),
                              .most_step = json.real_or("time_step_max", 0.1),
                              .step_floor = json.real_or("time_step_floor", 1e-4)};
  read_step_limits(json, dims);
  const int64_t expand = json.integer_or("expand", 2);
  require_heads_of_width(json, "num_heads", dims, expand * config.hidden_size);
  // torch's Kaiming-uniform with a = √5, whose deviation is 1 / √(3 · inputs).
  const double layers =
      json.boolean_or("rescale_prenorm_residual", false) ? static_cast<double>(config.layers) : 1;
  dims.convolution_std = 1 / std::sqrt(3 * static_cast<double>(dims.taps));
  dims.out_std = 1 / std::sqrt(3 * static_cast<double>(dims.width()) * layers);
  config.state_space = dims;
  return config;
}

std::string write(const ModelConfig& config, DType dtype) {
  const layers::StateSpaceDims& dims = config.state_space.value();
  nlohmann::ordered_json json;
  json["architectures"] = {"Mamba2ForCausalLM"};
  json["model_type"] = "mamba2";
  json["bos_token_id"] = id_json(config.bos_id);
  json["eos_token_id"] = id_json(config.eos_id);
  json["pad_token_id"] = id_json(config.pad_id);
  json["chunk_size"] = 256;
  json["conv_kernel"] = dims.taps;
  json["expand"] = dims.width() / config.hidden_size;
  json["head_dim"] = dims.head_dim;
  json["hidden_act"] = "silu";
  json["hidden_size"] = config.hidden_size;
  json["initializer_range"] = config.init_std;
  json["layer_norm_epsilon"] = config.norm_eps;
  json["n_groups"] = dims.groups;
  json["num_heads"] = dims.heads;
  json["num_hidden_layers"] = config.layers;
  json["rescale_prenorm_residual"] =
      dims.out_std < 0.9 / std::sqrt(3 * static_cast<double>(dims.width())) && config.layers > 1;
  json["residual_in_fp32"] = true;
  json["rms_norm"] = true;
  json["state_size"] = dims.state_dim;
  json["tie_word_embeddings"] = config.tied;
  json["time_step_floor"] = dims.step_floor;
  json["time_step_limit"] = step_limits_json(dims);
  json["time_step_max"] = dims.most_step;
  json["time_step_min"] = dims.least_step;
  json["torch_dtype"] = torch_name_of(dtype);
  json["use_bias"] = dims.bias;
  json["use_cache"] = true;
  json["use_conv_bias"] = dims.convolution_bias;
  json["vocab_size"] = config.vocab_size;
  return dump_json(json, 2) + "\n";
}

std::vector<TensorRow> tensors(const ModelConfig& config) {
  std::vector<TensorRow> list{{"backbone.embeddings.weight", "embedding.weight", 0, config.vocab_size}};
  for (int64_t i = 0; i < config.layers; ++i) {
    const std::string file = "backbone.layers." + std::to_string(i) + ".",
                      ours = "layers." + std::to_string(i) + ".";
    list.push_back({file + "norm.weight", ours + "attention_norm.weight", 0, config.hidden_size});
    add_state_space_rows(config.state_space.value(), config.hidden_size, file + "mixer.", ours + "mixer.",
                         list);
  }
  list.push_back({"backbone.norm_f.weight", "final_norm.weight", 0, config.hidden_size});
  if (!config.tied) list.push_back({"lm_head.weight", "head.weight", 0, config.vocab_size});
  return list;
}

bool ignored(const ModelConfig& config, std::string_view name) {
  return config.tied && name == "lm_head.weight";
}

constexpr PresetRow kPresets[] = {
    {"mamba2-30m", "small", 512, 14, 0, 0, 64, 0, 8192, 0,
     R"("num_heads":16,"n_groups":1,"tie_word_embeddings":true)"},
    {"mamba2-130m", "Mamba-2 130M", 768, 24, 0, 0, 64, 0, 50288, 0,
     R"("num_heads":24,"n_groups":1,"tie_word_embeddings":true)"},
    {"mamba2-370m", "Mamba-2 370M", 1024, 48, 0, 0, 64, 0, 50288, 0,
     R"("num_heads":32,"n_groups":1,"tie_word_embeddings":true)"},
    {"mamba2-780m", "Mamba-2 780M", 1536, 48, 0, 0, 64, 0, 50288, 0,
     R"("num_heads":48,"n_groups":1,"tie_word_embeddings":true)"},
    {"mamba2-1.3b", "Mamba-2 1.3B", 2048, 48, 0, 0, 64, 0, 50288, 0,
     R"("num_heads":64,"n_groups":1,"tie_word_embeddings":true)"},
    {"mamba2-2.7b", "Mamba-2 2.7B", 2560, 64, 0, 0, 64, 0, 50288, 0,
     R"("num_heads":80,"n_groups":1,"tie_word_embeddings":true)"},
};

}  // namespace

const Family kMamba2{
    .name = "mamba2",
    .model_type = "mamba2",
    .build = build_stack,
    .read = read,
    .write = write,
    .tensors = tensors,
    .ignored = ignored,
    .optional_prefix = "backbone.",
    .size_keys =
        {.heads = nullptr, .kv_heads = nullptr, .head_dim = "head_dim", .ffn = nullptr, .positions = nullptr},
    .presets = kPresets,
};

}  // namespace strata::models
