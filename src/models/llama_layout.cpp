#include "models/llama_layout.h"

#include <utility>

#include "base/json.h"

namespace strata::models {

ModelConfig read_llama_keys(const ConfigJson& json, const Family& family, const LlamaDefaults& defaults) {
  ModelConfig config;
  config.family = &family;
  config.vocab_size = json.integer("vocab_size");
  config.hidden_size = json.integer("hidden_size");
  config.layers = json.integer("num_hidden_layers");
  config.heads = json.integer("num_attention_heads");
  config.kv_heads = json.integer_or("num_key_value_heads", config.heads);
  config.head_dim = config.heads > 0 ? config.hidden_size / config.heads : 0;
  if (const char* key = family.size_keys.head_dim) config.head_dim = json.integer_or(key, config.head_dim);
  config.intermediate_size = defaults.intermediate_size > 0
                                 ? json.integer_or("intermediate_size", defaults.intermediate_size)
                                 : json.integer("intermediate_size");
  config.max_positions = json.integer_or("max_position_embeddings", defaults.max_positions);
  config.tied = json.boolean_or("tie_word_embeddings", defaults.tied);
  config.norm_eps = json.real_or(defaults.norm_eps_key, defaults.norm_eps);
  config.activation = json.activation(defaults.activation_key, defaults.activation);
  config.init_std = json.real_or("initializer_range", 0.02);
  config.rope = json.rope(config.max_positions, defaults.rope_theta);
  config.bos_id = json.optional_id("bos_token_id");
  config.eos_id = json.optional_id("eos_token_id");
  config.pad_id = json.optional_id("pad_token_id", defaults.pad_id);
  // The class's own padding means nothing in a smaller vocabulary.
  if (config.pad_id && *config.pad_id >= config.vocab_size) config.pad_id = std::nullopt;
  return config;
}

void read_llama_biases(const ConfigJson& json, ModelConfig& config) {
  config.qkv_bias = config.out_bias = json.boolean_or("attention_bias", false);
  config.ffn_bias = json.boolean_or("mlp_bias", false);
}

nlohmann::ordered_json llama_keys(const ModelConfig& config, const char* architecture, DType dtype,
                                  const LlamaDefaults& defaults) {
  nlohmann::ordered_json json;
  json["architectures"] = {architecture};
  json["model_type"] = config.family->model_type;
  json["attention_dropout"] = 0.0;
  json["bos_token_id"] = id_json(config.bos_id);
  json["eos_token_id"] = id_json(config.eos_id);
  json["pad_token_id"] = id_json(config.pad_id);
  if (const char* key = config.family->size_keys.head_dim) json[key] = config.head_dim;
  json[defaults.activation_key] = name_of(config.activation);
  json["hidden_size"] = config.hidden_size;
  json["initializer_range"] = config.init_std;
  json["intermediate_size"] = config.intermediate_size;
  json["max_position_embeddings"] = config.max_positions;
  json["num_attention_heads"] = config.heads;
  json["num_hidden_layers"] = config.layers;
  json["num_key_value_heads"] = config.kv_heads;
  if (config.norm != layers::NormSpec::Kind::kPlainLayer) json[defaults.norm_eps_key] = config.norm_eps;
  write_rope(json, config.rope);
  json["tie_word_embeddings"] = config.tied;
  json["torch_dtype"] = torch_name_of(dtype);
  json["use_cache"] = true;
  json["vocab_size"] = config.vocab_size;
  return json;
}

namespace {

// The rows of one of our parameters and their file's tensor, weight and bias.
struct Rows {
  std::vector<TensorRow>& list;
  std::string file, ours;  // prefixes of the layer

  void add(const std::string& name, const std::string& parameter, int64_t first, int64_t rows,
           bool bias) const {
    list.push_back({file + name + ".weight", ours + parameter + ".weight", first, rows});
    if (bias) list.push_back({file + name + ".bias", ours + parameter + ".bias", first, rows});
  }
};

void add_norms(const ModelConfig& config, int64_t layer, const Rows& rows, const DeltaNames& delta) {
  if (config.norm == layers::NormSpec::Kind::kPlainLayer) return;
  const bool bias = config.norm == layers::NormSpec::Kind::kLayer;
  const auto norm = [&](const char* name, const char* parameter) {
    rows.add(name, parameter, 0, config.hidden_size, bias);
  };
  if (!config.has_attention(layer)) {
    norm(delta.before_mixer, "attention_norm");
    norm(delta.before_ffn, "ffn_norm");
    return;
  }
  switch (config.norm_placement) {
    case layers::NormPlacement::kPostNorm:
      norm("post_attention_layernorm", "attention_post_norm");
      norm("post_feedforward_layernorm", "ffn_post_norm");
      break;
    case layers::NormPlacement::kSandwich:
      norm("input_layernorm", "attention_norm");
      norm("post_attention_layernorm", "attention_post_norm");
      norm("pre_feedforward_layernorm", "ffn_norm");
      norm("post_feedforward_layernorm", "ffn_post_norm");
      break;
    default:
      norm("input_layernorm", "attention_norm");
      norm("post_attention_layernorm", "ffn_norm");
  }
}

// With a gate of the output, the file has its rows after the queries of each head.
void add_queries(const ModelConfig& config, const Rows& rows) {
  if (!config.attention_gate)
    return rows.add("self_attn.q_proj", "attention.qkv", 0, config.q_width(), config.qkv_bias);
  for (const char* kind : {".weight", ".bias"}) {
    if (kind == std::string_view(".bias") && !config.qkv_bias) break;
    for (const auto& [ours, first] :
         {std::pair{"attention.qkv", int64_t{0}}, {"attention.gate", config.head_dim}}) {
      rows.list.push_back({.file_name = rows.file + "self_attn.q_proj" + kind,
                           .parameter = rows.ours + ours + kind,
                           .rows = config.q_width(),
                           .part = {first, config.head_dim, 2 * config.head_dim}});
    }
  }
}

void add_indexer(const ModelConfig& config, const Rows& rows) {
  const layers::IndexerDims& dims = *config.indexer;
  const std::string file = "self_attn.indexer.", ours = "attention.indexer.";
  rows.add(file + "wq_b", ours + "q", 0, dims.heads * dims.dim, false);
  rows.add(file + "wk", ours + "k", 0, dims.dim, false);
  rows.add(file + "k_norm", ours + "k_norm", 0, dims.dim, true);
  rows.add(file + "weights_proj", ours + "weights", 0, dims.heads, false);
}

void add_latent_attention(const ModelConfig& config, int64_t layer, const Rows& rows) {
  const layers::LatentDims& dims = *config.latent;
  const bool of_latent = dims.query_rank > 0;
  rows.add(of_latent ? "self_attn.q_b_proj" : "self_attn.q_proj", "attention.q", 0, config.q_width(), false);
  if (of_latent) {
    rows.add("self_attn.q_a_proj", "attention.down", 0, dims.query_rank, config.out_bias);
    rows.add("self_attn.q_a_layernorm", "attention.query_norm", 0, dims.query_rank, false);
  }
  rows.add("self_attn.kv_a_proj_with_mqa", "attention.down", dims.query_rank, dims.rank + dims.rotary_dim,
           config.out_bias);
  rows.add("self_attn.kv_a_layernorm", "attention.latent_norm", 0, dims.rank, false);
  rows.add("self_attn.kv_b_proj", "attention.kv", 0, config.heads * (dims.plain_dim + dims.value_dim), false);
  rows.list.back().interleave = {{dims.plain_dim, dims.value_dim}};
  rows.add("self_attn.o_proj", "attention.out", 0, config.hidden_size, config.out_bias);
  if (config.indexer && config.has_own_indexer(layer)) add_indexer(config, rows);
}

void add_attention(const ModelConfig& config, int64_t layer, const Rows& rows, bool fused) {
  if (config.latent) return add_latent_attention(config, layer, rows);
  const int64_t q = config.q_width(), kv = config.kv_width();
  if (fused) {
    rows.add("self_attn.qkv_proj", "attention.qkv", 0, q + 2 * kv, config.qkv_bias);
  } else {
    add_queries(config, rows);
    rows.add("self_attn.k_proj", "attention.qkv", q, kv, config.qkv_bias);
    rows.add("self_attn.v_proj", "attention.qkv", q + kv, kv, config.qkv_bias);
  }
  rows.add("self_attn.o_proj", "attention.out", 0, config.hidden_size, config.out_bias);
  if (config.sinks)
    rows.list.push_back({rows.file + "self_attn.sinks", rows.ours + "attention.sinks", 0, config.heads});
  if (config.qk_norm == layers::AttentionSpec::QkNorm::kAbsent) return;
  const bool head = config.qk_norm == layers::AttentionSpec::QkNorm::kHead;
  rows.add("self_attn.q_norm", "attention.q_norm", 0, head ? config.head_dim : q, false);
  rows.add("self_attn.k_norm", "attention.k_norm", 0, head ? config.head_dim : kv, false);
}

// Rows of one of our parameters from blocks of a file's tensor, one a key head.
struct Part {
  const char* parameter;
  int64_t row, rows, in_block;
};
void add_parts(const Rows& rows, const std::string& name, int64_t blocks, std::initializer_list<Part> parts) {
  int64_t stride = 0, first = 0;
  for (const Part& part : parts) stride += part.in_block;
  for (const Part& part : parts) {
    rows.list.push_back({.file_name = rows.file + name + ".weight",
                         .parameter = rows.ours + part.parameter + ".weight",
                         .row = part.row,
                         .rows = blocks * part.in_block,
                         .part = {first, part.in_block, stride}});
    first += part.in_block;
  }
}

void add_delta(const ModelConfig& config, const Rows& rows, const DeltaNames& names) {
  const layers::DeltaDims& dims = config.delta.value();
  const std::string block = std::string(names.block) + ".";
  const int64_t k = dims.key_width(), v = dims.value_width(), share = dims.value_heads / dims.key_heads;
  const auto add = [&](const char* name, const char* ours, int64_t first, int64_t count) {
    rows.add(block + name, ours, first, count, false);
  };
  const auto convolution = [&](const char* name, int64_t first, int64_t channels) {
    rows.list.push_back({.file_name = rows.file + block + name + ".weight",
                         .parameter = rows.ours + "mixer.convolution.weight",
                         .row = first,
                         .rows = channels,
                         .shape = {channels, 1, dims.taps}});
  };
  switch (names.stored) {
    case DeltaNames::Stored::kByKind:
      add("in_proj_qkv", "mixer.qkv", 0, 2 * k + v);
      add("in_proj_z", "mixer.gate", 0, v);
      add("in_proj_b", "mixer.step", 0, dims.value_heads);
      add("in_proj_a", "mixer.decay", 0, dims.value_heads);
      break;
    case DeltaNames::Stored::kByKeyHead:
      add_parts(rows, block + "in_proj_qkvz", dims.key_heads,
                {{"mixer.qkv", 0, k, dims.key_dim},
                 {"mixer.qkv", k, k, dims.key_dim},
                 {"mixer.qkv", 2 * k, v, share * dims.value_dim},
                 {"mixer.gate", 0, v, share * dims.value_dim}});
      add_parts(rows, block + "in_proj_ba", dims.key_heads,
                {{"mixer.step", 0, dims.value_heads, share}, {"mixer.decay", 0, dims.value_heads, share}});
      break;
    case DeltaNames::Stored::kSeparate:
      add("q_proj", "mixer.qkv", 0, k);
      add("k_proj", "mixer.qkv", k, k);
      add("v_proj", "mixer.qkv", 2 * k, v);
      add("b_proj", "mixer.step", 0, dims.value_heads);
      if (dims.gate_rank > 0) {
        add("g_a_proj", "mixer.gate_down", 0, dims.gate_rank);
        add("g_b_proj", "mixer.gate_up", 0, v);
        add("f_a_proj", "mixer.decay_down", 0, dims.gate_rank);
        add("f_b_proj", "mixer.decay_up", 0, dims.decays_by_channel ? k : dims.value_heads);
      } else {
        add("g_proj", "mixer.gate", 0, v);
        add("a_proj", "mixer.decay", 0, dims.value_heads);
      }
      break;
  }
  if (names.stored == DeltaNames::Stored::kSeparate) {
    convolution("q_conv1d", 0, k);
    convolution("k_conv1d", k, k);
    convolution("v_conv1d", 2 * k, v);
  } else {
    convolution("conv1d", 0, 2 * k + v);
  }
  TensorRow rate{.file_name = rows.file + block + "A_log",
                 .parameter = rows.ours + "mixer.decay_rate",
                 .rows = dims.value_heads};
  if (dims.decays_by_channel) rate.shape = {1, 1, dims.value_heads, 1};
  rows.list.push_back(rate);
  rows.list.push_back({.file_name = rows.file + block + "dt_bias",
                       .parameter = rows.ours + "mixer.step_bias",
                       .rows = dims.decays_by_channel ? k : dims.value_heads});
  add(names.norm, "mixer.norm", 0, dims.value_dim);
  add(names.out, "mixer.out", 0, config.hidden_size);
}

void add_ffn(const ModelConfig& config, const Rows& rows, const std::string& block, bool fused) {
  if (!config.gated) {
    rows.add(block + ".up_proj", "ffn.up", 0, config.intermediate_size, config.ffn_bias);
  } else if (fused) {
    rows.add(block + ".gate_up_proj", "ffn.up", 0, 2 * config.intermediate_size, config.ffn_bias);
  } else {
    rows.add(block + ".gate_proj", "ffn.up", 0, config.intermediate_size, config.ffn_bias);
    rows.add(block + ".up_proj", "ffn.up", config.intermediate_size, config.intermediate_size,
             config.ffn_bias);
  }
  rows.add(block + ".down_proj", "ffn.down", 0, config.hidden_size, config.ffn_bias);
}

void add_fused_experts(const ModelConfig& config, const Rows& rows, const ExpertNames& names) {
  const Experts& experts = config.experts;
  const std::string file = rows.file + names.block + ".experts.", ours = rows.ours + "ffn.experts.";
  const auto add = [&](const char* name, const char* parameter, int64_t outputs, const Interleave& order) {
    const int64_t all = experts.count * outputs;
    rows.list.push_back({file + name, ours + parameter + ".weight", 0, all, true, order, experts.count});
    if (experts.biases) {
      rows.list.push_back(
          {file + name + "_bias", ours + parameter + ".bias", 0, all, false, order, experts.count});
    }
  };
  Interleave pairs;
  if (names.fused == ExpertNames::Fused::kPairs) pairs.parts = {1, 1};
  add("gate_up_proj", "up", 2 * experts.intermediate_size, pairs);
  add("down_proj", "down", config.hidden_size, {});
}

void add_experts(const ModelConfig& config, const Rows& rows, const ExpertNames& names) {
  const Experts& experts = config.experts;
  const std::string block = names.block;
  rows.add(block + "." + names.router, "ffn.router", 0, experts.router_rows(), experts.biases);
  if (experts.router == Experts::Router::kTwoLevel)
    rows.add(block + ".gate_groups", "ffn.router_groups", 0, experts.route.groups, false);
  if (experts.router_bias) {
    rows.list.push_back({rows.file + block + ".gate.e_score_correction_bias", rows.ours + "ffn.router.bias",
                         0, experts.count});
  }
  const bool fused = names.fused != ExpertNames::Fused::kNone;
  if (fused) add_fused_experts(config, rows, names);
  for (int64_t e = 0; e < experts.count && !fused; ++e) {
    const std::string expert = block + ".experts." + std::to_string(e) + ".";
    const int64_t width = experts.intermediate_size, first = 2 * e * width;
    rows.add(expert + names.gate, "ffn.experts.up", first, width, false);
    rows.add(expert + names.up, "ffn.experts.up", first + width, width, false);
    rows.add(expert + names.down, "ffn.experts.down", e * config.hidden_size, config.hidden_size, false);
  }
  if (experts.shared_size == 0) return;
  const std::string shared = block + "." + names.shared;
  rows.add(shared + ".gate_proj", "ffn.shared.up", 0, experts.shared_size, false);
  rows.add(shared + ".up_proj", "ffn.shared.up", experts.shared_size, experts.shared_size, false);
  rows.add(shared + ".down_proj", "ffn.shared.down", 0, config.hidden_size, false);
  if (experts.shared_gate) rows.add(block + ".shared_expert_gate", "ffn.shared.gate", 0, 1, false);
}

// The tensors of a layer that predicts further tokens besides its block, named as in DeepSeek-V3.
void add_prediction(const ModelConfig& config, const Rows& rows) {
  for (const auto& [file, ours] : {std::pair{"enorm", "embedding_norm"},
                                   {"hnorm", "hidden_norm"},
                                   {"eh_proj", "in"},
                                   {"shared_head.norm", "final_norm"}})
    rows.add(file, std::string("predict.") + ours, 0, config.hidden_size, false);
}

std::vector<TensorRow> all_tensors(const ModelConfig& config, bool fused, const ExpertNames& names = {},
                                   const DeltaNames& delta = {}) {
  std::vector<TensorRow> list{{"model.embed_tokens.weight", "embedding.weight", 0, config.vocab_size}};
  for (int64_t i = 0; i < config.layers + config.predict_layers; ++i) {
    const std::string number = std::to_string(i);
    const Rows rows{list, "model.layers." + number + ".", "layers." + number + "."};
    if (i >= config.layers) add_prediction(config, rows);
    add_norms(config, i, rows, delta);
    if (config.has_attention(i)) {
      add_attention(config, i, rows, fused);
    } else {
      add_delta(config, rows, delta);
    }
    if (config.experts.at(i)) {
      add_experts(config, rows, names);
    } else {
      add_ffn(config, rows, names.dense_block, fused);
    }
  }
  if (config.norm != layers::NormSpec::Kind::kPlainLayer) {
    Rows{list, "model.", ""}.add("norm", "final_norm", 0, config.hidden_size,
                                 config.norm == layers::NormSpec::Kind::kLayer);
  }
  if (!config.tied) list.push_back({"lm_head.weight", "head.weight", 0, config.vocab_size});
  return list;
}

}  // namespace

std::vector<TensorRow> llama_tensors(const ModelConfig& config) {
  return all_tensors(config, false);
}
std::vector<TensorRow> llama_tensors_with_experts(const ModelConfig& config, const ExpertNames& names) {
  return all_tensors(config, false, names);
}
std::vector<TensorRow> hybrid_tensors(const ModelConfig& config, const DeltaNames& delta,
                                      const ExpertNames& experts) {
  return all_tensors(config, false, experts, delta);
}
std::vector<TensorRow> fused_llama_tensors(const ModelConfig& config) {
  return all_tensors(config, true);
}

bool llama_ignores(const ModelConfig& config, std::string_view name) {
  return name.ends_with("rotary_emb.inv_freq") || (config.tied && name == "lm_head.weight");
}

void add_router_rows(const Experts& experts, const std::string& scores, const std::string& groups,
                     const std::string& ours, std::vector<TensorRow>& list) {
  list.push_back({scores + ".weight", ours + "ffn.router.weight", 0, experts.router_rows()});
  if (experts.router == Experts::Router::kTwoLevel)
    list.push_back({groups + ".weight", ours + "ffn.router_groups.weight", 0, experts.route.groups});
}

}  // namespace strata::models
