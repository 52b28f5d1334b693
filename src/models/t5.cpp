// T5 and T5 1.1 (Raffel et al. 2020): an encoder and a decoder, RMS norms, scores biased by distance instead
// of positions, no biases, scores that are not scaled.

#include "base/error.h"
#include "base/json.h"
#include "models/config_json.h"
#include "models/decoder.h"
#include "models/families.h"
#include "models/t5_layout.h"

namespace strata::models {
namespace {

using Json = nlohmann::ordered_json;

// feed_forward_proj: "relu", "gated-gelu", …; the latter uses gelu_new in transformers.
void read_feed_forward(const ConfigJson& json, const std::string& where, ModelConfig& config) {
  const std::string name = json.text_or("feed_forward_proj", "relu");
  config.gated = name.starts_with("gated-");
  const std::string function = config.gated ? name.substr(6) : name;
  const nlohmann::json named{{"feed_forward_proj", name == "gated-gelu" ? "gelu_new" : function}};
  config.activation = ConfigJson(dump_json(named), where).activation("feed_forward_proj", "relu");
}

std::string feed_forward(const ModelConfig& config) {
  const std::string function = config.activation == ActivationKind::kGeluTanh
                                   ? (config.gated ? "gelu" : "gelu_new")
                                   : name_of(config.activation);
  return (config.gated ? "gated-" : "") + function;
}

}  // namespace

ModelConfig read_t5_keys(const ConfigJson& json, const Family& family) {
  ModelConfig config;
  config.family = &family;
  config.architecture = Architecture::kEncoderDecoder;
  json.require_equal("is_encoder_decoder", true);
  config.vocab_size = json.integer("vocab_size");
  config.hidden_size = json.integer("d_model");
  config.encoder_layers = json.integer("num_layers");
  config.layers = json.integer_or("num_decoder_layers", config.encoder_layers);
  config.heads = json.integer("num_heads");
  config.kv_heads = config.heads;
  config.head_dim = json.integer("d_kv");
  config.intermediate_size = json.integer("d_ff");
  config.max_positions = 512;
  config.tied =
      !json.has("tie_word_embeddings") || json.boolean_or("tie_word_embeddings", true);  // also null
  config.scaled_head = config.tied;
  config.norm_eps = json.real_or("layer_norm_epsilon", 1e-6);
  config.init_std = json.real_or("initializer_factor", 1.0);
  config.init = InitScheme::kT5;
  config.positions = Positions::kRelative;
  config.distance_buckets = json.integer_or("relative_attention_num_buckets", 32);
  config.max_distance = json.integer_or("relative_attention_max_distance", 128);
  config.attention_scalar = 1;
  config.eos_id = json.optional_id("eos_token_id", 1);
  config.pad_id = json.optional_id("pad_token_id", 0);
  config.start_id = json.optional_id("decoder_start_token_id", config.pad_id);
  return config;
}

Json t5_keys(const ModelConfig& config, const char* architecture, DType dtype) {
  Json json;
  json["architectures"] = {architecture};
  json["d_ff"] = config.intermediate_size;
  json["d_kv"] = config.head_dim;
  json["d_model"] = config.hidden_size;
  json["decoder_start_token_id"] = id_json(config.start_id);
  // Pretraining runs without dropout; other values from a config.json are stored next to the ModelConfig.
  json["dropout_rate"] = 0.0;
  json["eos_token_id"] = id_json(config.eos_id);
  json["initializer_factor"] = config.init_std;
  json["is_encoder_decoder"] = true;
  json["layer_norm_epsilon"] = config.norm_eps;
  json["model_type"] = config.family->model_type;
  json["num_decoder_layers"] = config.layers;
  json["num_heads"] = config.heads;
  json["num_layers"] = config.encoder_layers;
  json["pad_token_id"] = id_json(config.pad_id);
  json["relative_attention_max_distance"] = config.max_distance;
  json["relative_attention_num_buckets"] = config.distance_buckets;
  json["tie_word_embeddings"] = config.tied;
  json["torch_dtype"] = torch_name_of(dtype);
  json["use_cache"] = true;
  json["vocab_size"] = config.vocab_size;
  return json;
}

namespace {

// The tensors of one stack; a decoder's FFN comes third.
void add_stack(const ModelConfig& config, bool encoder, const std::string& ffn,
               std::vector<TensorRow>& rows) {
  const std::string file = encoder ? "encoder." : "decoder.", ours = encoder ? "encoder." : "";
  const int64_t q = config.q_width(), d = config.hidden_size;
  rows.push_back({file + "block.0.layer.0.SelfAttention.relative_attention_bias.weight",
                  ours + "relative_bias.weight", 0, config.distance_buckets});
  for (int64_t i = 0; i < (encoder ? config.encoder_layers : config.layers); ++i) {
    const std::string block = file + "block." + std::to_string(i) + ".layer.";
    const std::string layer = ours + "layers." + std::to_string(i) + ".";
    const auto add = [&](const std::string& name, const std::string& parameter, int64_t first,
                         int64_t count) {
      rows.push_back({block + name + ".weight", layer + parameter + ".weight", first, count});
    };
    add("0.SelfAttention.q", "attention.qkv", 0, q);
    add("0.SelfAttention.k", "attention.qkv", q, q);
    add("0.SelfAttention.v", "attention.qkv", 2 * q, q);
    add("0.SelfAttention.o", "attention.out", 0, d);
    add("0.layer_norm", "attention_norm", 0, d);
    if (!encoder) {
      add("1.EncDecAttention.q", "cross.q", 0, q);
      add("1.EncDecAttention.k", "cross.kv", 0, q);
      add("1.EncDecAttention.v", "cross.kv", q, q);
      add("1.EncDecAttention.o", "cross.out", 0, d);
      add("1.layer_norm", "cross_norm", 0, d);
    }
    const std::string last = encoder ? "1." : "2.";
    const Experts& experts = config.experts;
    if (encoder ? experts.at_encoder(i) : experts.at(i)) {
      add(last + ffn + ".router.classifier", "ffn.router", 0, experts.router_rows());
      if (experts.router == Experts::Router::kTwoLevel)
        add(last + ffn + ".router.groups", "ffn.router_groups", 0, experts.route.groups);
      for (int64_t e = 0; e < experts.count; ++e) {
        const std::string expert = last + ffn + ".experts.expert_" + std::to_string(e);
        add(expert + ".wi", "ffn.experts.up", e * experts.intermediate_size, experts.intermediate_size);
        add(expert + ".wo", "ffn.experts.down", e * d, d);
      }
    } else {
      if (config.gated) {
        add(last + ffn + ".wi_0", "ffn.up", 0, config.intermediate_size);
        add(last + ffn + ".wi_1", "ffn.up", config.intermediate_size, config.intermediate_size);
      } else {
        add(last + ffn + ".wi", "ffn.up", 0, config.intermediate_size);
      }
      add(last + ffn + ".wo", "ffn.down", 0, d);
    }
    add(last + "layer_norm", "ffn_norm", 0, d);
  }
  rows.push_back({file + "final_layer_norm.weight", ours + "final_norm.weight", 0, d});
}

}  // namespace

std::vector<TensorRow> t5_tensors(const ModelConfig& config, const std::string& ffn) {
  std::vector<TensorRow> rows{{"shared.weight", "embedding.weight", 0, config.vocab_size}};
  add_stack(config, true, ffn, rows);
  add_stack(config, false, ffn, rows);
  if (!config.tied) rows.push_back({"lm_head.weight", "head.weight", 0, config.vocab_size});
  return rows;
}

bool t5_ignores(const ModelConfig& config, std::string_view name) {
  return name == "encoder.embed_tokens.weight" || name == "decoder.embed_tokens.weight" ||
         name == "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight" ||
         (config.tied && name == "lm_head.weight");
}

namespace {

ModelConfig read(const std::string& text, const std::string& where) {
  const ConfigJson json(text, where);
  ModelConfig config = read_t5_keys(json, kT5);
  config.max_positions = json.integer_or("n_positions", 512);
  // transformers 5 ties every head in memory and keeps in this field whether it was tied in the file.
  config.scaled_head = json.boolean_or("scale_decoder_outputs", config.tied);
  read_feed_forward(json, where, config);
  return config;
}

std::string write(const ModelConfig& config, DType dtype) {
  Json json = t5_keys(config, "T5ForConditionalGeneration", dtype);
  json["feed_forward_proj"] = feed_forward(config);
  json["n_positions"] = config.max_positions;
  json["scale_decoder_outputs"] = config.scaled_head;
  return dump_json(json, 2) + "\n";
}

std::vector<TensorRow> tensors(const ModelConfig& config) {
  return t5_tensors(config, "DenseReluDense");
}

constexpr const char* kT5Tied = R"("decoder_start_token_id":0)";
constexpr const char* kT5Gated =
    R"("decoder_start_token_id":0,"tie_word_embeddings":false,"feed_forward_proj":"gated-gelu")";
constexpr PresetRow kPresets[] = {
    {"t5-small", "T5 small", 512, 6, 8, 8, 64, 2048, 32128, 512, kT5Tied},
    {"t5-base", "T5 base", 768, 12, 12, 12, 64, 3072, 32128, 512, kT5Tied},
    {"t5-large", "T5 large", 1024, 24, 16, 16, 64, 4096, 32128, 512, kT5Tied},
    {"t5-3b", "T5 3B", 1024, 24, 32, 32, 128, 16384, 32128, 512, kT5Tied},
    {"t5-11b", "T5 11B", 1024, 24, 128, 128, 128, 65536, 32128, 512, kT5Tied},
    {"t5-v1.1-small", "T5 1.1 small", 512, 8, 6, 6, 64, 1024, 32128, 512, kT5Gated},
    {"t5-v1.1-base", "T5 1.1 base", 768, 12, 12, 12, 64, 2048, 32128, 512, kT5Gated},
    {"t5-v1.1-large", "T5 1.1 large", 1024, 24, 16, 16, 64, 2816, 32128, 512, kT5Gated},
    {"t5-v1.1-xl", "T5 1.1 XL", 2048, 24, 32, 32, 64, 5120, 32128, 512, kT5Gated},
    {"t5-v1.1-xxl", "T5 1.1 XXL", 4096, 24, 64, 64, 64, 10240, 32128, 512, kT5Gated},
};

}  // namespace

const Family kT5{
    .name = "t5",
    .model_type = "t5",
    .build = build_encoder_decoder,
    .read = read,
    .write = write,
    .tensors = tensors,
    .ignored = t5_ignores,
    .size_keys = {"d_model", "num_layers", "num_heads", nullptr, "d_kv", "d_ff", "n_positions"},
    .presets = kPresets,
};

}  // namespace strata::models
