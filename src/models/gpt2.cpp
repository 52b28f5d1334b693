// GPT-2: learned positions, pre-LayerNorm with bias, multi-head attention, GELU (tanh), biases everywhere,
// tied head.

#include "base/error.h"
#include "base/json.h"
#include "models/config_json.h"
#include "models/decoder.h"
#include "models/families.h"

namespace strata::models {
namespace {

using Json = nlohmann::ordered_json;

ModelConfig read(const std::string& text, const std::string& where) {
  const ConfigJson json(text, where);
  ModelConfig config;
  config.family = &kGpt2;
  json.require_equal("scale_attn_weights", true);
  json.require_equal("scale_attn_by_inverse_layer_idx", false);
  json.require_equal("add_cross_attention", false);
  config.vocab_size = json.integer("vocab_size");
  config.hidden_size = json.integer("n_embd");
  config.layers = json.integer("n_layer");
  config.heads = json.integer("n_head");
  config.kv_heads = config.heads;
  config.head_dim = config.heads > 0 ? config.hidden_size / config.heads : 0;
  config.intermediate_size = json.integer_or("n_inner", 4 * config.hidden_size);
  config.max_positions = json.integer_or("n_positions", 1024);
  config.tied = json.boolean_or("tie_word_embeddings", true);
  config.norm_eps = json.real_or("layer_norm_epsilon", 1e-5);
  config.init_std = json.real_or("initializer_range", 0.02);
  config.init = InitScheme::kScaledResidual;
  config.positions = Positions::kLearned;
  config.norm = layers::NormSpec::Kind::kLayer;
  config.qkv_bias = config.out_bias = config.ffn_bias = true;
  config.gated = false;
  config.activation = json.activation("activation_function", "gelu_new");
  config.bos_id = json.optional_id("bos_token_id");
  config.eos_id = json.optional_id("eos_token_id");
  return config;
}

std::string write(const ModelConfig& config, DType dtype) {
  Json json;
  json["activation_function"] =
      config.activation == ActivationKind::kGeluTanh ? "gelu_new" : name_of(config.activation);
  json["architectures"] = {"GPT2LMHeadModel"};
  // Pretraining runs without dropout; other values from a config.json are stored next to the ModelConfig.
  json["attn_pdrop"] = 0.0;
  json["bos_token_id"] = id_json(config.bos_id);
  json["embd_pdrop"] = 0.0;
  json["eos_token_id"] = id_json(config.eos_id);
  json["initializer_range"] = config.init_std;
  json["layer_norm_epsilon"] = config.norm_eps;
  json["model_type"] = "gpt2";
  json["n_ctx"] = config.max_positions;  // in the hub's files; llama.cpp's converter needs it
  json["n_embd"] = config.hidden_size;
  json["n_head"] = config.heads;
  json["n_inner"] =
      config.intermediate_size == 4 * config.hidden_size ? Json() : Json(config.intermediate_size);
  json["n_layer"] = config.layers;
  json["n_positions"] = config.max_positions;
  json["reorder_and_upcast_attn"] = false;
  json["resid_pdrop"] = 0.0;
  json["scale_attn_by_inverse_layer_idx"] = false;
  json["scale_attn_weights"] = true;
  json["tie_word_embeddings"] = config.tied;
  json["torch_dtype"] = torch_name_of(dtype);
  json["use_cache"] = true;
  json["vocab_size"] = config.vocab_size;
  return dump_json(json, 2) + "\n";
}

std::vector<TensorRow> tensors(const ModelConfig& config) {
  const int64_t d = config.hidden_size;
  std::vector<TensorRow> rows{{"transformer.wte.weight", "embedding.weight", 0, config.vocab_size},
                              {"transformer.wpe.weight", "positions.weight", 0, config.max_positions}};
  auto add = [&](const std::string& file, const std::string& ours, int64_t outputs, bool matrix) {
    rows.push_back({file + ".weight", ours + ".weight", 0, outputs, matrix});
    rows.push_back({file + ".bias", ours + ".bias", 0, outputs});
  };
  for (int64_t i = 0; i < config.layers; ++i) {
    const std::string file = "transformer.h." + std::to_string(i) + ".";
    const std::string ours = "layers." + std::to_string(i) + ".";
    add(file + "ln_1", ours + "attention_norm", d, false);
    add(file + "attn.c_attn", ours + "attention.qkv", 3 * d, true);
    add(file + "attn.c_proj", ours + "attention.out", d, true);
    add(file + "ln_2", ours + "ffn_norm", d, false);
    add(file + "mlp.c_fc", ours + "ffn.up", config.intermediate_size, true);
    add(file + "mlp.c_proj", ours + "ffn.down", d, true);
  }
  add("transformer.ln_f", "final_norm", d, false);
  if (!config.tied) rows.push_back({"lm_head.weight", "head.weight", 0, config.vocab_size});
  return rows;
}

bool ignored(const ModelConfig& config, std::string_view name) {
  return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias") ||
         (config.tied && name == "lm_head.weight");
}

constexpr const char* kGpt2Ids = R"("bos_token_id":50256,"eos_token_id":50256)";
constexpr PresetRow kPresets[] = {
    {"gpt2-124m", "GPT-2 small", 768, 12, 12, 12, 64, 3072, 50257, 1024, kGpt2Ids},
    {"gpt2-355m", "GPT-2 medium", 1024, 24, 16, 16, 64, 4096, 50257, 1024, kGpt2Ids},
    {"gpt2-774m", "GPT-2 large", 1280, 36, 20, 20, 64, 5120, 50257, 1024, kGpt2Ids},
    {"gpt2-1.5b", "GPT-2 XL", 1600, 48, 25, 25, 64, 6400, 50257, 1024, kGpt2Ids},
};

}  // namespace

const Family kGpt2{
    .name = "gpt2",
    .model_type = "gpt2",
    .build = build_stack,
    .read = read,
    .write = write,
    .tensors = tensors,
    .ignored = ignored,
    .optional_prefix = "transformer.",
    .size_keys = {"n_embd", "n_layer", "n_head", nullptr, nullptr, "n_inner", "n_positions"},
    .presets = kPresets,
};

}  // namespace strata::models
