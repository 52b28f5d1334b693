// BERT (Devlin et al. 2019): an encoder with learned positions, norms of sums, and a head for masked tokens.

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
  config.family = &kBert;
  config.architecture = Architecture::kEncoder;
  json.require_equal("position_embedding_type", "absolute");
  json.require_equal("is_decoder", false);
  json.require_equal("add_cross_attention", false);
  config.vocab_size = json.integer("vocab_size");
  config.hidden_size = json.integer("hidden_size");
  config.layers = json.integer("num_hidden_layers");
  config.heads = json.integer("num_attention_heads");
  config.kv_heads = config.heads;
  config.head_dim = config.heads > 0 ? config.hidden_size / config.heads : 0;
  config.intermediate_size = json.integer("intermediate_size");
  config.max_positions = json.integer_or("max_position_embeddings", 512);
  config.token_types = json.integer_or("type_vocab_size", 2);
  config.tied = json.boolean_or("tie_word_embeddings", true);
  config.norm_eps = json.real_or("layer_norm_eps", 1e-12);
  config.init_std = json.real_or("initializer_range", 0.02);
  config.activation = json.activation("hidden_act", "gelu");
  config.norm_placement = layers::NormPlacement::kNormOfSum;
  config.norm = layers::NormSpec::Kind::kLayer;
  config.positions = Positions::kLearned;
  config.embedding_norm = config.head_transform = true;
  config.qkv_bias = config.out_bias = config.ffn_bias = true;
  config.gated = false;
  config.bos_id = json.optional_id("bos_token_id");
  config.eos_id = json.optional_id("eos_token_id");
  config.pad_id = json.optional_id("pad_token_id", 0);
  return config;
}

std::string write(const ModelConfig& config, DType dtype) {
  Json json;
  json["architectures"] = {"BertForMaskedLM"};
  // Pretraining runs without dropout; other values from a config.json are stored next to the ModelConfig.
  json["attention_probs_dropout_prob"] = 0.0;
  json["bos_token_id"] = id_json(config.bos_id);
  json["classifier_dropout"] = nullptr;
  json["eos_token_id"] = id_json(config.eos_id);
  json["hidden_act"] =
      config.activation == ActivationKind::kGeluTanh ? "gelu_new" : name_of(config.activation);
  json["hidden_dropout_prob"] = 0.0;
  json["hidden_size"] = config.hidden_size;
  json["initializer_range"] = config.init_std;
  json["intermediate_size"] = config.intermediate_size;
  json["layer_norm_eps"] = config.norm_eps;
  json["max_position_embeddings"] = config.max_positions;
  json["model_type"] = "bert";
  json["num_attention_heads"] = config.heads;
  json["num_hidden_layers"] = config.layers;
  json["pad_token_id"] = id_json(config.pad_id);
  json["position_embedding_type"] = "absolute";
  json["tie_word_embeddings"] = config.tied;
  json["torch_dtype"] = torch_name_of(dtype);
  json["type_vocab_size"] = config.token_types;
  json["use_cache"] = true;
  json["vocab_size"] = config.vocab_size;
  return dump_json(json, 2) + "\n";
}

std::vector<TensorRow> tensors(const ModelConfig& config) {
  const int64_t d = config.hidden_size;
  const std::string embeddings = "bert.embeddings.", predictions = "cls.predictions.";
  std::vector<TensorRow> rows{
      {embeddings + "word_embeddings.weight", "embedding.weight", 0, config.vocab_size},
      {embeddings + "position_embeddings.weight", "positions.weight", 0, config.max_positions},
      {embeddings + "token_type_embeddings.weight", "token_types.weight", 0, config.token_types}};
  const auto add = [&](const std::string& file, const std::string& ours, int64_t first, int64_t count) {
    rows.push_back({file + ".weight", ours + ".weight", first, count});
    rows.push_back({file + ".bias", ours + ".bias", first, count});
  };
  add(embeddings + "LayerNorm", "embedding_norm", 0, d);
  for (int64_t i = 0; i < config.layers; ++i) {
    const std::string file = "bert.encoder.layer." + std::to_string(i) + ".";
    const std::string ours = "layers." + std::to_string(i) + ".";
    const int64_t q = config.q_width();
    add(file + "attention.self.query", ours + "attention.qkv", 0, q);
    add(file + "attention.self.key", ours + "attention.qkv", q, q);
    add(file + "attention.self.value", ours + "attention.qkv", 2 * q, q);
    add(file + "attention.output.dense", ours + "attention.out", 0, d);
    add(file + "attention.output.LayerNorm", ours + "attention_post_norm", 0, d);
    add(file + "intermediate.dense", ours + "ffn.up", 0, config.intermediate_size);
    add(file + "output.dense", ours + "ffn.down", 0, d);
    add(file + "output.LayerNorm", ours + "ffn_post_norm", 0, d);
  }
  add(predictions + "transform.dense", "head_transform", 0, d);
  add(predictions + "transform.LayerNorm", "head_norm", 0, d);
  rows.push_back({predictions + "bias", "head.bias", 0, config.vocab_size});
  if (!config.tied) rows.push_back({predictions + "decoder.weight", "head.weight", 0, config.vocab_size});
  return rows;
}

// Parts of BERT that masked language modelling does not use (the next-sentence head and its pooler), and
// copies of tied tensors.
bool ignored(const ModelConfig& config, std::string_view name) {
  return name.starts_with("bert.pooler.") || name.starts_with("cls.seq_relationship.") ||
         name == "bert.embeddings.position_ids" || name == "cls.predictions.decoder.bias" ||
         (config.tied && name == "cls.predictions.decoder.weight");
}

// Names in files that were converted from TensorFlow.
constexpr Family::OldEnding kOldEndings[] = {{".LayerNorm.weight", ".LayerNorm.gamma"},
                                             {".LayerNorm.bias", ".LayerNorm.beta"}};

// The sizes of Devlin et al. 2019, and the smaller ones of Turc et al. 2019.
constexpr const char* kBertIds = R"("bos_token_id":101,"eos_token_id":102,"pad_token_id":0)";
constexpr PresetRow kPresets[] = {
    {"bert-tiny", "BERT tiny, uncased", 128, 2, 2, 2, 64, 512, 30522, 512, kBertIds},
    {"bert-mini", "BERT mini, uncased", 256, 4, 4, 4, 64, 1024, 30522, 512, kBertIds},
    {"bert-small", "BERT small, uncased", 512, 4, 8, 8, 64, 2048, 30522, 512, kBertIds},
    {"bert-medium", "BERT medium, uncased", 512, 8, 8, 8, 64, 2048, 30522, 512, kBertIds},
    {"bert-base", "BERT base, uncased", 768, 12, 12, 12, 64, 3072, 30522, 512, kBertIds},
    {"bert-large", "BERT large, uncased", 1024, 24, 16, 16, 64, 4096, 30522, 512, kBertIds},
    {"bert-base-cased", "BERT base, cased", 768, 12, 12, 12, 64, 3072, 28996, 512, kBertIds},
    {"bert-large-cased", "BERT large, cased", 1024, 24, 16, 16, 64, 4096, 28996, 512, kBertIds},
};

}  // namespace

const Family kBert{
    .name = "bert",
    .model_type = "bert",
    .build = build_stack,
    .read = read,
    .write = write,
    .tensors = tensors,
    .ignored = ignored,
    .optional_prefix = "bert.",
    .old_endings = kOldEndings,
    .size_keys = {.kv_heads = nullptr, .head_dim = nullptr},
    .presets = kPresets,
};

}  // namespace strata::models
