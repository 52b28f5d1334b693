// GPT-NeoX and Pythia: LayerNorm, parallel attention and FFN, partial rotary embeddings, biases everywhere.

#include "base/json.h"
#include "models/config_json.h"
#include "models/decoder.h"
#include "models/families.h"

namespace strata::models {
namespace {

ModelConfig read(const std::string& text, const std::string& where) {
  const ConfigJson json(text, where);
  ModelConfig config;
  config.family = &kGptNeoX;
  json.require_equal("is_decoder", false);
  config.vocab_size = json.integer("vocab_size");
  config.hidden_size = json.integer("hidden_size");
  config.layers = json.integer("num_hidden_layers");
  config.heads = config.kv_heads = json.integer("num_attention_heads");
  config.head_dim = config.heads > 0 ? config.hidden_size / config.heads : 0;
  config.intermediate_size = json.integer_or("intermediate_size", 24576);
  config.max_positions = json.integer_or("max_position_embeddings", 2048);
  config.tied = json.boolean_or("tie_word_embeddings", false);
  config.norm = layers::NormSpec::Kind::kLayer;
  config.norm_eps = json.real_or("layer_norm_eps", 1e-5);
  config.norm_placement = json.boolean_or("use_parallel_residual", true) ? layers::NormPlacement::kParallel
                                                                         : layers::NormPlacement::kPreNorm;
  config.qkv_bias = config.out_bias = json.boolean_or("attention_bias", true);
  config.ffn_bias = true;
  config.gated = false;
  config.activation = json.activation("hidden_act", "gelu");
  // As in transformers, the keys are rotary_emb_base and rotary_pct, or those of rope_parameters; a top-level
  // rope_theta or partial_rotary_factor is ignored.
  config.rope = json.rope(config.max_positions, 10000, nullptr, "rotary_emb_base");
  config.partial_rotary_factor = json.partial_rotary_factor(0.25, "rotary_pct");
  config.init_std = json.real_or("initializer_range", 0.02);
  config.init = InitScheme::kSmallWang;
  config.bos_id = json.optional_id("bos_token_id");
  config.eos_id = json.optional_id("eos_token_id");
  return config;
}

std::string write(const ModelConfig& config, DType dtype) {
  nlohmann::ordered_json json;
  json["architectures"] = {"GPTNeoXForCausalLM"};
  json["model_type"] = "gpt_neox";
  json["attention_bias"] = config.qkv_bias;
  json["attention_dropout"] = 0.0;
  json["bos_token_id"] = id_json(config.bos_id);
  json["eos_token_id"] = id_json(config.eos_id);
  json["hidden_act"] = name_of(config.activation);
  json["hidden_dropout"] = 0.0;
  json["hidden_size"] = config.hidden_size;
  json["initializer_range"] = config.init_std;
  json["intermediate_size"] = config.intermediate_size;
  json["layer_norm_eps"] = config.norm_eps;
  json["max_position_embeddings"] = config.max_positions;
  json["num_attention_heads"] = config.heads;
  json["num_hidden_layers"] = config.layers;
  write_rope(json, config.rope);
  json["rotary_emb_base"] = config.rope.theta;
  json["rotary_pct"] = config.partial_rotary_factor;
  json["tie_word_embeddings"] = config.tied;
  json["torch_dtype"] = torch_name_of(dtype);
  json["use_cache"] = true;
  json["use_parallel_residual"] = config.norm_placement == layers::NormPlacement::kParallel;
  json["vocab_size"] = config.vocab_size;
  return dump_json(json, 2) + "\n";
}

std::vector<TensorRow> tensors(const ModelConfig& config) {
  const int64_t d = config.hidden_size;
  std::vector<TensorRow> rows{{"gpt_neox.embed_in.weight", "embedding.weight", 0, config.vocab_size}};
  auto add = [&](const std::string& file, const std::string& ours, int64_t outputs, bool bias = true,
                 const Interleave& interleave = {}) {
    rows.push_back({file + ".weight", ours + ".weight", 0, outputs, false, interleave});
    if (bias) rows.push_back({file + ".bias", ours + ".bias", 0, outputs, false, interleave});
  };
  for (int64_t i = 0; i < config.layers; ++i) {
    const std::string file = "gpt_neox.layers." + std::to_string(i) + ".";
    const std::string ours = "layers." + std::to_string(i) + ".";
    add(file + "input_layernorm", ours + "attention_norm", d);
    add(file + "post_attention_layernorm", ours + "ffn_norm", d);
    add(file + "attention.query_key_value", ours + "attention.qkv", 3 * d, config.qkv_bias,
        {.parts = {config.head_dim, config.head_dim, config.head_dim}});
    add(file + "attention.dense", ours + "attention.out", d, config.out_bias);
    add(file + "mlp.dense_h_to_4h", ours + "ffn.up", config.intermediate_size);
    add(file + "mlp.dense_4h_to_h", ours + "ffn.down", d);
  }
  add("gpt_neox.final_layer_norm", "final_norm", d);
  if (!config.tied) rows.push_back({"embed_out.weight", "head.weight", 0, config.vocab_size});
  return rows;
}

bool ignored(const ModelConfig& config, std::string_view name) {
  return name.ends_with(".attention.bias") || name.ends_with(".attention.masked_bias") ||
         name.ends_with(".rotary_emb.inv_freq") || (config.tied && name == "embed_out.weight");
}

constexpr const char* kPythia = R"("bos_token_id":0,"eos_token_id":0)";
constexpr PresetRow kPresets[] = {
    {"pythia-14m", "Pythia 14M", 128, 6, 4, 4, 32, 512, 50304, 2048, kPythia},
    {"pythia-31m", "Pythia 31M", 256, 6, 8, 8, 32, 1024, 50304, 2048, kPythia},
    {"pythia-70m", "Pythia 70M", 512, 6, 8, 8, 64, 2048, 50304, 2048, kPythia},
    {"pythia-160m", "Pythia 160M", 768, 12, 12, 12, 64, 3072, 50304, 2048, kPythia},
    {"pythia-410m", "Pythia 410M", 1024, 24, 16, 16, 64, 4096, 50304, 2048, kPythia},
    {"pythia-1b", "Pythia 1B", 2048, 16, 8, 8, 256, 8192, 50304, 2048, kPythia},
    {"pythia-1.4b", "Pythia 1.4B", 2048, 24, 16, 16, 128, 8192, 50304, 2048, kPythia},
    {"pythia-2.8b", "Pythia 2.8B", 2560, 32, 32, 32, 80, 10240, 50304, 2048, kPythia},
    {"pythia-6.9b", "Pythia 6.9B", 4096, 32, 32, 32, 128, 16384, 50432, 2048, kPythia},
    {"pythia-12b", "Pythia 12B", 5120, 36, 40, 40, 128, 20480, 50688, 2048, kPythia},
    {"gpt-neox-20b", "GPT-NeoX 20B", 6144, 44, 64, 64, 96, 24576, 50432, 2048,
     R"("bos_token_id":0,"eos_token_id":0,"hidden_act":"gelu_fast")"},
};

}  // namespace

const Family kGptNeoX{
    .name = "neox",
    .model_type = "gpt_neox",
    .build = build_stack,
    .read = read,
    .write = write,
    .tensors = tensors,
    .ignored = ignored,
    .optional_prefix = "gpt_neox.",
    .size_keys = {.kv_heads = nullptr, .head_dim = nullptr},
    .presets = kPresets,
};

}  // namespace strata::models
