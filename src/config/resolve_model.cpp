#include <algorithm>

#include "base/error.h"
#include "base/json.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/huggingface.h"
#include "checkpoint/weights.h"
#include "config/objective.h"
#include "config/optimizer_rules.h"
#include "config/precision.h"
#include "config/resolve.h"
#include "config/resolve_moe.h"
#include "config/value_json.h"
#include "models/parametrization.h"

namespace strata::config {
namespace {

// A value of [model.override] as JSON text.
std::string json_of(const ConfigValue& value) {
  return dump_json(to_json(value), -1, InvalidUtf8::kReplace);
}

models::ModelConfig model_of_family(const ModelTable& table) {
  const models::Family* family = models::find_family(table.family);
  if (family == nullptr) {
    std::string known;
    for (const models::Family* each : models::families())
      known += (known.empty() ? "" : ", ") + std::string(each->name);
    throw ConfigError("[model.family] found \"{}\", expected one of {}", table.family, known);
  }
  // Unset sizes follow the family's smallest preset, in its proportions.
  const models::ModelConfig base = models::smallest_preset(*family);
  models::ModelConfig config = base;
  config.vocab_size = table.vocab_size.value_or(config.vocab_size);
  config.hidden_size = table.hidden_size.value_or(config.hidden_size);
  config.layers = table.num_hidden_layers.value_or(config.layers);
  if (config.encoder_layers > 0)
    config.encoder_layers = table.num_hidden_layers.value_or(config.encoder_layers);
  config.heads = table.num_attention_heads.value_or(config.heads);
  const bool grouped = base.kv_heads < base.heads;
  config.kv_heads =
      table.num_key_value_heads.value_or(grouped ? std::min(config.kv_heads, config.heads) : config.heads);
  if (!config.latent) {
    config.head_dim = table.head_dim.value_or(config.heads > 0 ? config.hidden_size / config.heads : 0);
  } else if (table.head_dim) {
    throw ConfigError(
        "[model.head_dim] {} has separate sizes for the parts of a head; set qk_nope_head_dim, qk_rope_head_dim and "
        "v_head_dim in [model.override]",
        family->name);
  }
  config.intermediate_size =
      table.intermediate_size.value_or(config.hidden_size * base.intermediate_size / base.hidden_size);
  config.max_positions = table.max_position_embeddings.value_or(config.max_positions);
  config.tied = table.tie_word_embeddings.value_or(config.tied);
  config.rope.theta = table.rope_theta.value_or(config.rope.theta);
  return config;
}

// Checks the initialization of the model's weights.
void check_start(const RunConfig& config, const models::ModelConfig& model, std::vector<Issue>& issues) {
  const auto report = [&](const char* key, std::string problem) {
    issues.push_back({key, config.origin_of(key), std::move(problem)});
  };
  for (std::string& problem : models::mup_errors(model))
    report("model.mup_base_hidden_size", std::move(problem));
  // By family: its config.json has a factor for its own scheme instead of a standard deviation.
  if (model.init == models::InitScheme::kT5 && !config.model.init_scheme.is_word()) {
    report("model.init_scheme", fmt::format("found it for {}, which has its own initialization; leave it out",
                                            model.family->name));
  }
  const bool by_sizes =
      model.init == models::InitScheme::kSmallWang || model.init == models::InitScheme::kMitchell;
  if (config.model.init_std && config.model.init_scheme.is_word() && by_sizes) {
    report(
        "model.init_std",
        fmt::format("found it for {}, whose scheme \"{}\" depends only on the sizes; choose an init_scheme "
                    "that has a standard deviation, such as \"normal\"",
                    model.family->name, models::name_of(model.init)));
  }
}

// The vocabulary of a model made for this run has the size of its trained tokenizer, unless vocab_size is
// set.
bool takes_vocabulary_of_tokenizer(const RunConfig& config) {
  if (!config.tokenizer.train_given || config.tokenizer.train.vocab_size.is_word()) return false;
  if (!config.tokenizer.path.empty() || !config.model.from.empty() || config.model.vocab_size) return false;
  const auto* overrides = config.model.overrides.get_if<ConfigValue::Table>();
  return overrides == nullptr ||
         std::none_of(overrides->begin(), overrides->end(),
                      [](const ConfigEntry& entry) { return entry.key == "vocab_size"; });
}

// Whether the folder has weights; a model without weights can still be planned.
bool has_weights(const Path& folder) {
  std::error_code error;
  for (const char* name : {"model.safetensors", "model.safetensors.index.json", "pytorch_model.bin",
                           "pytorch_model.bin.index.json"}) {
    if (std::filesystem::exists(folder / name, error)) return true;
  }
  return false;
}

}  // namespace

Path model_folder(const RunConfig& config) {
  return checkpoint::resolve_model(config.model.from);
}

namespace {

// With a loss weight of 0 the layers are omitted. Without the key they are also omitted if the model's files
// lack them, as files written by transformers do.
void apply_prediction(const RunConfig& config, models::ModelConfig& model) {
  const Auto<double>& weight = config.model.mtp_loss_weight;
  model.predict_weight = weight.value_or(model.predict_weight);
  if (model.predict_weight == 0) model.predict_layers = 0;
  const bool reads_weights = !config.model.from.empty() && config.model.init == ModelInit::kWeights;
  if (model.predict_layers == 0 || !weight.is_word() || !reads_weights) return;
  const Path folder = model_folder(config);
  if (has_weights(folder) && !checkpoint::holds_prediction(folder, model)) model.predict_layers = 0;
}

void check_prediction(const RunConfig& config, const models::ModelConfig& model, std::vector<Issue>& issues) {
  if (model.predict_layers > 0 || config.model.mtp_loss_weight.value_or(0) == 0) return;
  issues.push_back({"model.mtp_loss_weight", config.origin_of("model.mtp_loss_weight"),
                    fmt::format("found it for a {} model without layers that predict further tokens; set "
                                "num_nextn_predict_layers in [model.override] if the family has it "
                                "(deepseek3, glm4-moe), or leave it out",
                                model.family->name)});
}

void check_indexer(const RunConfig& config, const models::ModelConfig& model, std::vector<Issue>& issues) {
  using Indexer = layers::Settings::Indexer;
  if (!model.indexer) {
    if (config.model.indexer.is_word()) return;
    issues.push_back(
        {"model.indexer", config.origin_of("model.indexer"),
         fmt::format("found it for {}, which has no indexer; leave it out, or take a family that has one "
                     "(deepseek3.2, glm-5)",
                     model.family->name)});
    return;
  }
  const bool warms_up = config.model.indexer.value_or(Indexer::kSparse) == Indexer::kDense;
  if (warms_up || model.indexer->count <= config.training.sequence_length) return;
  issues.push_back(
      {"training.sequence_length", config.origin_of("training.sequence_length"),
       fmt::format(
           "found {}, but each token attends to {} keys (index_topk), so all would be chosen and the indexer "
           "would learn nothing; take at least {}, or set model.override.index_topk to {} or less",
           config.training.sequence_length, model.indexer->count, model.indexer->count,
           config.training.sequence_length)});
}

}  // namespace

models::ModelConfig resolve_model(const RunConfig& config) {
  models::ModelConfig model;
  std::string where = config.model.preset.empty() ? "model.family " + config.model.family
                                                  : "model.preset " + config.model.preset;
  if (!config.model.from.empty()) {
    const Path folder = model_folder(config);
    where = (folder / "config.json").string();
    model = models::read_config_json(checkpoint::read_config_json(folder), where);
  } else if (!config.model.preset.empty()) {
    model = models::preset(config.model.preset);
  } else {
    model = model_of_family(config.model);
    // In families whose experts are as wide as the FFN, one key sets both.
    if (model.experts.count > 0 && models::errors_of(model).empty())
      model = models::read_config_json(models::write_config_json(model, DType::kF32), where);
  }
  std::vector<std::pair<std::string, std::string>> overrides;
  if (const auto* table = config.model.overrides.get_if<ConfigValue::Table>()) {
    for (const ConfigEntry& entry : *table) overrides.emplace_back(entry.key, json_of(entry.value));
  }
  model = models::with_overrides(model, overrides, where);
  const bool own_ends = std::none_of(overrides.begin(), overrides.end(),
                                     [](const auto& one) { return one.first == "eos_token_id"; });
  if (!config.model.from.empty() && own_ends)
    model.generation_eos_ids = data::generation_ends(model_folder(config));
  if (takes_vocabulary_of_tokenizer(config)) model.vocab_size = *config.tokenizer.train.vocab_size;
  model.init = config.model.init_scheme.value_or(model.init);
  model.init_std = config.model.init_std.value_or(model.init_std);
  model.mup = {.base_hidden_size = config.model.mup_base_hidden_size.value_or(0),
               .base_head_dim = config.model.mup_base_head_dim.value_or(0)};
  apply_moe(config, model.experts);
  apply_prediction(config, model);
  return model;
}

void check_model(const RunConfig& config, std::vector<Issue>& issues) {
  const std::string key = !config.model.from.empty()     ? "model.from"
                          : !config.model.preset.empty() ? "model.preset"
                                                         : "model.family";
  try {
    const models::ModelConfig model = resolve_model(config);
    auto problems = models::errors_of(model);
    for (std::string& problem : problems) issues.push_back({key, config.origin_of(key), std::move(problem)});
    if (problems.empty()) {
      for (std::string& problem : models::transformers_errors(model))
        issues.push_back({key, config.origin_of(key), std::move(problem)});
    }
    // config.json is used for a plan only if the weights next to it match.
    if (problems.empty() && !config.model.from.empty() && config.model.init == ModelInit::kWeights &&
        config.model.overrides.get_if<ConfigValue::Table>()->empty() && has_weights(model_folder(config)))
      checkpoint::check_weights(model_folder(config), model);
    if (problems.empty()) {
      check_groups(config, model, issues);
      check_keep(config, model, issues);
    }
    if (problems.empty()) check_moe(config, model, issues);
    if (problems.empty()) check_prediction(config, model, issues);
    if (problems.empty()) check_indexer(config, model, issues);
    if (problems.empty()) check_optimizers(config, model, issues);
    if (problems.empty()) check_score_limit(config, model, issues);
    if (problems.empty()) check_objective(config, model, issues);
    if (problems.empty()) check_start(config, model, issues);
    if (config.training.sequence_length > model.max_sequence_length()) {
      issues.push_back(
          {"training.sequence_length", config.origin_of("training.sequence_length"),
           fmt::format("found {}, but the model has {} positions; lower it or raise max_position_embeddings",
                       config.training.sequence_length, model.max_positions)});
    }
  } catch (const ConfigError& error) {
    issues.push_back({key, config.origin_of(key), error.what()});
  }
}

}  // namespace strata::config
