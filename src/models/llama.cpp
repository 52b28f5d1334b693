// Llama 2, 3, 3.1: RMSNorm, rotary embedding, grouped-query attention, SwiGLU, no biases.
#include "models/llama.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "models/config_json.h"
#include "models/parameters.h"

namespace strata::models {
namespace {

using Json = nlohmann::ordered_json;

Hidden build(const ModelConfig& config, layers::Context& context) {
  graph::Graph& graph = context.graph;
  const auto table =
      layers::embedding_table(context, "embedding.weight", config.vocab_size, config.width, config.init_std);
  const int64_t positions =
      context.mode == layers::Mode::kCached ? context.cache_room : context.sequence_length;
  const layers::DecoderSpec spec{
      .layers = config.layers,
      .norm = {.width = config.width, .eps = config.norm_eps},
      .attention = {.width = config.width,
                    .heads = config.heads,
                    .kv_heads = config.kv_heads,
                    .head_dim = config.head_dim,
                    .rope_table = ops::rope_table(graph, positions, config.head_dim, config.rope),
                    .init_std = config.init_std,
                    .out_init_std = residual_init_std(config)},
      .ffn = {.width = config.width,
              .hidden = config.ffn,
              .init_std = config.init_std,
              .out_init_std = residual_init_std(config)}};
  const auto hidden =
      layers::decoder(context, spec, ops::embedding(graph, context.tokens, table, context.activations));
  return {hidden, head_table(config, context, table)};
}

ModelConfig read(const std::string& text, const std::string& where) {
  const ConfigJson json(text, where);
  ModelConfig config;
  config.family = &kLlama;
  json.require_equal("hidden_act", "silu");
  json.require_equal("attention_bias", false);
  json.require_equal("mlp_bias", false);
  json.require_equal("attention_dropout", 0.0);
  json.require_equal("pretraining_tp", 1);
  config.vocab_size = json.integer("vocab_size");
  config.width = json.integer("hidden_size");
  config.layers = json.integer("num_hidden_layers");
  config.heads = json.integer("num_attention_heads");
  config.kv_heads = json.integer_or("num_key_value_heads", config.heads);
  config.head_dim = json.integer_or("head_dim", config.heads > 0 ? config.width / config.heads : 0);
  config.ffn = json.integer("intermediate_size");
  config.max_positions = json.integer_or("max_position_embeddings", 2048);
  config.tied = json.boolean_or("tie_word_embeddings", false);
  config.norm_eps = json.real_or("rms_norm_eps", 1e-6);
  config.init_std = json.real_or("initializer_range", 0.02);
  config.rope = json.rope_scaling();
  config.bos_id = json.optional_id("bos_token_id");
  config.eos_id = json.optional_id("eos_token_id");
  return config;
}

std::string write(const ModelConfig& config, DType dtype) {
  Json json;
  json["architectures"] = {"LlamaForCausalLM"};
  json["attention_bias"] = false;
  json["attention_dropout"] = 0.0;
  json["bos_token_id"] = id_json(config.bos_id);
  json["eos_token_id"] = id_json(config.eos_id);
  json["head_dim"] = config.head_dim;
  json["hidden_act"] = "silu";
  json["hidden_size"] = config.width;
  json["initializer_range"] = config.init_std;
  json["intermediate_size"] = config.ffn;
  json["max_position_embeddings"] = config.max_positions;
  json["mlp_bias"] = false;
  json["model_type"] = "llama";
  json["num_attention_heads"] = config.heads;
  json["num_hidden_layers"] = config.layers;
  json["num_key_value_heads"] = config.kv_heads;
  json["pretraining_tp"] = 1;
  json["rms_norm_eps"] = config.norm_eps;
  write_rope(json, config.rope);
  json["tie_word_embeddings"] = config.tied;
  json["torch_dtype"] = torch_name_of(dtype);
  json["use_cache"] = true;
  json["vocab_size"] = config.vocab_size;
  return json.dump(2) + "\n";
}

std::vector<TensorRow> tensors(const ModelConfig& config) {
  const int64_t q = config.heads * config.head_dim;
  const int64_t kv = config.kv_heads * config.head_dim;
  std::vector<TensorRow> rows{{"model.embed_tokens.weight", "embedding.weight", 0, config.vocab_size}};
  for (int64_t i = 0; i < config.layers; ++i) {
    const std::string file = "model.layers." + std::to_string(i) + ".";
    const std::string ours = "layers." + std::to_string(i) + ".";
    rows.push_back({file + "input_layernorm.weight", ours + "attention_norm.weight", 0, config.width});
    rows.push_back({file + "self_attn.q_proj.weight", ours + "attention.qkv.weight", 0, q});
    rows.push_back({file + "self_attn.k_proj.weight", ours + "attention.qkv.weight", q, kv});
    rows.push_back({file + "self_attn.v_proj.weight", ours + "attention.qkv.weight", q + kv, kv});
    rows.push_back({file + "self_attn.o_proj.weight", ours + "attention.out.weight", 0, config.width});
    rows.push_back({file + "post_attention_layernorm.weight", ours + "ffn_norm.weight", 0, config.width});
    rows.push_back({file + "mlp.gate_proj.weight", ours + "ffn.up.weight", 0, config.ffn});
    rows.push_back({file + "mlp.up_proj.weight", ours + "ffn.up.weight", config.ffn, config.ffn});
    rows.push_back({file + "mlp.down_proj.weight", ours + "ffn.down.weight", 0, config.width});
  }
  rows.push_back({"model.norm.weight", "final_norm.weight", 0, config.width});
  if (!config.tied) rows.push_back({"lm_head.weight", "head.weight", 0, config.vocab_size});
  return rows;
}

bool ignored(const ModelConfig& config, std::string_view name) {
  return name.ends_with("rotary_emb.inv_freq") || (config.tied && name == "lm_head.weight");
}

}  // namespace

const Family kLlama{"llama3", "llama", build, read, write, tensors, ignored, "model."};

}  // namespace strata::models
