#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <optional>

#include "base/error.h"
#include "base/json.h"
#include "base/suggest.h"
#include "models/class_sizes.h"
#include "models/config_json.h"
#include "models/families.h"
#include "models/hybrid.h"
#include "models/parametrization.h"
#include "models/text_part.h"

namespace strata::models {

bool SlidingWindow::at(int64_t layer) const {
  if (size == 0) return false;
  if (!layers.empty()) return layers.at(static_cast<size_t>(layer));
  return layer >= first && (period == 0 || (layer + 1) % period != 0);
}

bool UnrotatedLayers::at(int64_t layer) const {
  if (!layers.empty()) return layers.at(static_cast<size_t>(layer));
  return period > 0 && (layer + 1) % period == 0;
}

bool UnrotatedLayers::any(int64_t of_layers) const {
  for (int64_t i = 0; i < of_layers; ++i)
    if (at(i)) return true;
  return false;
}

namespace {

std::string known_model_types() {
  std::string text;
  for (const Family* family : kFamilies) text += (text.empty() ? "" : ", ") + std::string(family->model_type);
  return text;
}

ModelConfig read_as(const Family& family, const std::string& text, const std::string& where) {
  ModelConfig config = family.read(text, where);
  config.dropout = ConfigJson(text, where).dropout();
  config.more_eos_ids = ConfigJson(text, where).further_ids("eos_token_id");
  read_own_router(text, where, config.experts);
  return config;
}

}  // namespace

std::span<const Family* const> families() {
  return kFamilies;
}

const Family* find_family(std::string_view name) {
  for (const Family* family : kFamilies) {
    if (family->name == name || family->model_type == name) return family;
  }
  return nullptr;
}

const TextPart* text_part_of(const Family& family) {
  // The published files of Llama 4, Gemma 3 and Mistral 3 contain …ForConditionalGeneration, for which
  // transformers has put the text model's names under "model." since 4.52.
  static constexpr TextPart::Name kNames[] = {{"language_model.", ""}, {"model.language_model.", "model."}};
  static constexpr std::string_view kIgnored[] = {"vision_model.", "vision_tower.", "model.vision_tower.",
                                                  "multi_modal_projector.", "model.multi_modal_projector."};
  static constexpr TextPart kOfLlama4{"llama4", kNames, kIgnored};
  static constexpr TextPart kOfGemma3{"gemma3", kNames, kIgnored};
  static constexpr TextPart kOfMistral3{"mistral3", kNames, kIgnored};
  return &family == &kLlama4    ? &kOfLlama4
         : &family == &kGemma3  ? &kOfGemma3
         : &family == &kMistral ? &kOfMistral3
                                : nullptr;
}

namespace {

// The text model's config.json if this is a multimodal one; nullopt otherwise.
std::optional<std::string> text_config_of(const std::string& text, const std::string& where) {
  const std::string model_type = ConfigJson(text, where).text_or("model_type", "");
  const auto is_part = [&](const Family* family) {
    const TextPart* const part = text_part_of(*family);
    return part != nullptr && part->model_type == model_type;
  };
  const auto* const family = std::find_if(kFamilies.begin(), kFamilies.end(), is_part);
  if (family == kFamilies.end()) return std::nullopt;
  const auto whole = parse_json<nlohmann::json>(text);
  const auto part = whole.find("text_config");
  if (part == whole.end() || !part->is_object()) {
    throw DataError(
        "[{}] model_type \"{}\" is a multimodal model, but there is no object \"text_config\". A text "
        "model's config.json has model_type \"{}\"",
        where, model_type, (*family)->model_type);
  }
  nlohmann::json json = *part;
  if (!json.contains("model_type")) json["model_type"] = (*family)->model_type;
  // The ids that begin and end a text may be fields of the multimodal model.
  for (const char* key : {"tie_word_embeddings", "bos_token_id", "eos_token_id", "pad_token_id"}) {
    if (!json.contains(key) && whole.contains(key)) json[key] = whole[key];
  }
  return dump_json(json);
}

}  // namespace

ModelConfig read_config_json(const std::string& text, const std::string& where) {
  if (const auto part = text_config_of(text, where)) return read_config_json(*part, where + ": text_config");
  std::string model_type = ConfigJson(text, where).text_or("model_type", "");
  if (model_type.starts_with(kOwnRouterPrefix)) model_type.erase(0, kOwnRouterPrefix.size());
  const Family* family = find_family(model_type);
  if (family == nullptr) {
    if (ConfigJson(text, where).has("text_config")) {
      throw DataError(
          "[{}] model_type \"{}\" is a multimodal model: expected \"llama4\", \"gemma3\" or \"mistral3\". "
          "Export its text model separately",
          where, model_type);
    }
    std::vector<std::string> types;
    for (const Family* each : kFamilies) types.emplace_back(each->model_type);
    const auto near = nearest_name(model_type, types);
    throw DataError("[{}] model_type \"{}\" is not known: expected one of {}{}", where, model_type,
                    known_model_types(), near ? ". Nearest is \"" + *near + '"' : "");
  }
  return read_as(*family, with_class_sizes(*family, text), where);
}

std::string write_config_json(const ModelConfig& config, DType dtype) {
  std::string text = with_own_router(config.family->write(config, dtype), config.experts);
  if (config.dropout.empty() && config.more_eos_ids.empty()) return text;
  auto json = parse_json<nlohmann::ordered_json>(text);
  if (config.eos_id && !config.more_eos_ids.empty()) {
    json["eos_token_id"] = nlohmann::ordered_json::array({*config.eos_id});
    for (const int64_t id : config.more_eos_ids) json["eos_token_id"].push_back(id);
  }
  for (const auto& [key, rate] : config.dropout) json[key] = rate;
  return dump_json(json, 2) + "\n";
}

namespace {

// Whether the family's reader uses this field of the json: an invalid value is then an error or changes the
// model.
bool reads(const Family& family, const nlohmann::json& json, const nlohmann::json::json_pointer& field) {
  const auto written = [&](const nlohmann::json& text) {
    return write_config_json(read_as(family, dump_json(text), "model.override"), DType::kF32);
  };
  const std::string without = written(json);
  for (const nlohmann::json& impossible :
       {nlohmann::json("no value of any field"), nlohmann::json::array({nlohmann::json::object()})}) {
    nlohmann::json changed = json;
    changed[field] = impossible;
    try {
      if (written(changed) != without) return true;
    } catch (const DataError&) {
      return true;
    } catch (const nlohmann::json::exception&) {
      return true;
    }
  }
  return false;
}

// The keys of an object, for suggestions.
std::vector<std::string> keys_of(const nlohmann::json& object) {
  std::vector<std::string> keys;
  if (!object.is_object()) return keys;
  for (const auto& [key, value] : object.items()) keys.push_back(key);
  return keys;
}

[[noreturn]] void refuse_override(const Family& family, const std::string& where, const std::string& name,
                                  const std::string& last, const std::vector<std::string>& known) {
  const auto near = nearest_name(last, known);
  throw ConfigError("[{}] model.override.{}: a {} config.json has no such field{}; leave it out", where, name,
                    family.model_type, near && *near != last ? ", did you mean \"" + *near + "\"?" : "");
}

// A field that would be ignored is an error: the run would train another model than intended.
void check_overrides_are_read(const ModelConfig& model, const nlohmann::json& json,
                              const std::vector<std::pair<std::string, std::string>>& overrides,
                              const std::string& where) {
  const Family& family = *model.family;
  const auto written = parse_json<nlohmann::json>(write_config_json(model, DType::kF32));
  const auto read_keys = [&](const nlohmann::json& within, const nlohmann::json::json_pointer& at) {
    std::vector<std::string> known = keys_of(within);
    std::erase_if(known, [&](const std::string& key) { return !reads(family, json, at / key); });
    return known;
  };
  const nlohmann::json::json_pointer root;
  for (const auto& [key, text] : overrides) {
    if (!reads(family, json, root / key)) refuse_override(family, where, key, key, read_keys(written, root));
    for (const std::string& inner : keys_of(json[key])) {
      if (!reads(family, json, root / key / inner)) {
        refuse_override(
            family, where, key + "." + inner, inner,
            written.contains(key) ? read_keys(written[key], root / key) : std::vector<std::string>{});
      }
    }
  }
}

}  // namespace

ModelConfig with_overrides(const ModelConfig& config,
                           const std::vector<std::pair<std::string, std::string>>& overrides,
                           const std::string& where) {
  if (overrides.empty()) return config;
  auto json = parse_json<nlohmann::json>(write_config_json(config, DType::kF32));
  for (const auto& [key, value] : overrides) {
    json[key] = parse_json<nlohmann::json>(value);
    // The family's rule decides again which layers have windows, unless they are overridden too.
    if (key == "num_hidden_layers") {
      for (const char* by_layer : {"layer_types", "no_rope_layers", "moe_layers", "indexer_types"})
        json.erase(by_layer);
    }
  }
  try {
    ModelConfig model = read_as(*config.family, dump_json(json), "model.override");
    // The caller reports impossible sizes.
    if (errors_of(model).empty()) check_overrides_are_read(model, json, overrides, where);
    return model;
  } catch (const DataError& error) {  // the other fields are valid
    throw ConfigError("{}", error.what());
  }
}

namespace {

// "1099511627776", "9.2e+18".
std::string short_number(int64_t value) {
  return value < 10'000'000'000'000 ? std::to_string(value)
                                    : fmt::format("{:.2g}", static_cast<double>(value));
}

void add_expert_errors(const Experts& experts, std::vector<std::string>& errors) {
  if (experts.count == 0) return;
  const ops::RouteAttrs& route = experts.route;
  if (experts.router == Experts::Router::kSoft && (experts.slots < 1 || experts.slots > kMostWidth)) {
    errors.push_back(fmt::format("a soft expert has {} inputs: expected 1 to {}", experts.slots, kMostWidth));
  }
  if (route.k < 1 || route.k > experts.count) {
    errors.push_back(fmt::format("each token goes to {} of {} experts: expected 1 to {}", route.k,
                                 experts.count, experts.count));
    return;
  }
  if (route.groups < 1 || experts.count % route.groups != 0) {
    errors.push_back(fmt::format("{} experts are not a multiple of {} groups: expected equal groups",
                                 experts.count, route.groups));
    return;
  }
  if (route.kept_groups < 1 || route.kept_groups > route.groups) {
    errors.push_back(fmt::format("each token keeps {} of {} groups of experts: expected 1 to {}",
                                 route.kept_groups, route.groups, route.groups));
    return;
  }
  const int64_t left = route.kept_groups * (experts.count / route.groups);
  if (route.k > left) {
    errors.push_back(fmt::format(
        "each token goes to {} experts, but the {} of {} groups that it keeps have {}. Keep more groups",
        route.k, route.kept_groups, route.groups, left));
  }
}

}  // namespace

namespace {

void add_indexer_errors(const ModelConfig& config, std::vector<std::string>& errors) {
  const layers::IndexerDims& dims = *config.indexer;
  const auto within = [&](const char* key, int64_t value, int64_t least, int64_t most, const char* what) {
    if (value < least || value > most)
      errors.push_back(fmt::format("{} is {}: expected {} to {}{}", key, value, least, most, what));
  };
  within("index_n_heads", dims.heads, 1, kMostHeads, "");
  within("index_head_dim", dims.dim, config.rotary_dim(), kMostHeadDim,
         ", at least the dimensions that rotate (qk_rope_head_dim)");
  within("index_topk", dims.count, 1, config.max_positions,
         ", the keys of the longest sequence (max_position_embeddings)");
}

}  // namespace

std::vector<std::string> errors_of(const ModelConfig& config) {
  std::vector<std::string> errors;
  const auto within = [&](int64_t value, int64_t most, const char* what) {
    if (value <= 0) errors.push_back(fmt::format("{} is {}: expected at least 1", what, short_number(value)));
    if (value > most)
      errors.push_back(fmt::format("{} is {}: expected at most {}", what, short_number(value), most));
  };
  within(config.vocab_size, kMostIds, "the vocabulary size");
  within(config.hidden_size, kMostWidth, "the model width");
  within(config.layers, kMostLayers, "the number of layers");
  if (config.architecture == Architecture::kEncoderDecoder)
    within(config.encoder_layers, kMostLayers, "the number of encoder layers");
  if (config.predict_layers != 0)
    within(config.predict_layers, kMostLayers, "the number of layers that predict further tokens");
  within(config.heads, kMostHeads, "the number of heads");
  within(config.kv_heads, kMostHeads, "the number of key-value heads");
  within(config.head_dim, kMostHeadDim, "the head size");
  within(config.intermediate_size, kMostFfnWidth, "the FFN width");
  within(config.max_positions, kMostIds, "the number of positions");
  if (config.experts.count != 0) {
    within(config.experts.count, kMostExperts, "the number of experts");
    within(config.experts.intermediate_size, kMostFfnWidth, "the FFN width of an expert");
    if (config.experts.shared_size != 0)
      within(config.experts.shared_size, kMostFfnWidth, "the FFN width of the shared expert");
  }
  if (config.positions == Positions::kRelative) {
    within(config.distance_buckets, kMostWidth, "the number of distance buckets");
    within(config.max_distance, kMostIds, "the largest distance");
  }
  if (config.token_types > kMostWidth) within(config.token_types, kMostWidth, "the number of token types");
  const auto real = [&](double value, double most, const char* what) {
    if (!(value >= 0 && value <= most))
      errors.push_back(fmt::format("{} is {:.3g}: expected 0 to {:g}", what, value, most));
  };
  real(config.norm_eps, 1, "the norms' epsilon");
  real(config.init_std, 1000, "the standard deviation of initial weights");
  if (config.positions == Positions::kRotary)
    real(config.rope.theta, kMostTheta, "the base of the rotary embedding");
  if (!errors.empty()) return errors;
  if (config.heads % config.kv_heads != 0) {
    errors.push_back(fmt::format("{} heads cannot share {} key-value heads: expected a multiple",
                                 config.heads, config.kv_heads));
  }
  if (config.latent) {
    const layers::LatentDims& dims = *config.latent;
    if (dims.query_rank > 0) within(dims.query_rank, kMostWidth, "the rank of the queries' latent");
    within(dims.rank + dims.rotary_dim, kMostLatent,
           "the rank of keys and values plus the rotary dimensions");
    within(dims.value_dim, kMostHeadDim, "the size of a head's values");
    if (config.kv_heads != config.heads)
      errors.push_back(fmt::format("latent attention has {} key-value heads for {} heads: both must be equal",
                                   config.kv_heads, config.heads));
    if (config.indexer) add_indexer_errors(config, errors);
  } else if (config.family->size_keys.head_dim == nullptr && config.hidden_size % config.heads != 0) {
    errors.push_back(
        fmt::format("the width {} is not a multiple of {} heads", config.hidden_size, config.heads));
  }
  if (config.positions == Positions::kRotary && (config.rotary_dim() % 2 != 0 || config.rotary_dim() == 0)) {
    errors.push_back(fmt::format("{} of {} dimensions of a head rotate: expected an even number",
                                 config.rotary_dim(), config.head_dim));
  }
  const auto pairs = static_cast<size_t>(config.rotary_dim() / 2);
  if (config.rope.kind == ops::RopeScaling::Kind::kLongRope &&
      (config.rope.short_factors.size() != pairs || config.rope.long_factors.size() != pairs)) {
    errors.push_back(fmt::format("rope_scaling has {} short and {} long factors: expected {} of each",
                                 config.rope.short_factors.size(), config.rope.long_factors.size(), pairs));
  }
  add_expert_errors(config.experts, errors);
  add_mixer_errors(config, errors);
  if (!config.sliding_window.layers.empty() &&
      static_cast<int64_t>(config.sliding_window.layers.size()) != config.layers) {
    errors.push_back(fmt::format("layer_types has {} entries: expected one for each of {} layers",
                                 config.sliding_window.layers.size(), config.layers));
  }
  return errors;
}

// Checks of transformers 5, in its configuration classes and models.
std::vector<std::string> transformers_errors(const ModelConfig& config) {
  std::vector<std::string> errors;
  const std::string_view family = config.family->name;
  const int64_t share = config.hidden_size / config.heads;
  const auto is = [&](std::initializer_list<std::string_view> names) {
    return std::find(names.begin(), names.end(), family) != names.end();
  };
  if (is({"llama3", "gemma2", "gemma3", "deepseek2"}) && config.hidden_size % config.heads != 0) {
    errors.push_back(fmt::format(
        "the width {} is not a multiple of {} heads, which transformers requires of {} models, regardless "
        "of their head size",
        config.hidden_size, config.heads, family));
  }
  if (is({"llama3"}) && config.init_std > 1) {
    errors.push_back(
        fmt::format("initializer_range is {}: transformers accepts at most 1 for llama3", config.init_std));
  }
  if (is({"gemma2", "gemma3"}) && config.attention_scalar != std::floor(config.attention_scalar)) {
    errors.push_back(fmt::format("query_pre_attn_scalar is {}: transformers requires an integer for {}",
                                 config.attention_scalar, family));
  }
  using Kind = ops::RopeScaling::Kind;
  if (is({"phi3"}) && config.rope.kind != Kind::kUnscaled && config.rope.kind != Kind::kLongRope)
    errors.emplace_back("transformers accepts only \"longrope\" as rope_scaling of phi3");
  if (is({"phi3"}) && config.rope.kind == Kind::kLongRope && config.head_dim != share) {
    errors.push_back(fmt::format(
        "transformers applies longrope's factors of phi3 to heads of size {} (width / heads), not of {}",
        share, config.head_dim));
  }
  return errors;
}

namespace {

// Visits every parameter's shape, from the graph itself, so that no formula can diverge from it.
template <typename Visit>
void visit_parameters(const ModelConfig& config, Visit visit) {
  graph::Graph graph;
  // Enough tokens for each expert to choose one. The capacity of experts does not affect parameters.
  const int64_t tokens = std::max<int64_t>(1, config.experts.count);
  ModelConfig unbounded = config;
  unbounded.experts.capacity = {};
  layers::Context context{.graph = graph, .rows = {.length = tokens, .sequences = 1}};
  if (config.architecture == Architecture::kEncoderDecoder) context.rows.encoder_length = tokens;
  layers::add_batch(context);
  const Hidden hidden = config.family->build(unbounded, context);
  for (const auto& parameter : graph.parameters())
    visit(graph.value(parameter.value), parameter, parameter.value == hidden.head);
}

}  // namespace

double elements_for_a_token(const ModelConfig& config, graph::ParameterRole role, const Shape& shape) {
  const bool of_experts = role == graph::ParameterRole::kExpertIn ||
                          role == graph::ParameterRole::kExpertOut ||
                          role == graph::ParameterRole::kExpertBias;
  return static_cast<double>(shape.elements()) * (of_experts ? config.experts.share_of_a_token() : 1);
}

int64_t parameter_count(const ModelConfig& config) {
  int64_t count = 0;
  visit_parameters(config, [&](const graph::Value& value, const graph::Parameter&, bool) {
    count += value.shape.elements();
  });
  return count;
}

int64_t active_parameter_count(const ModelConfig& config) {
  double count = 0;
  visit_parameters(config, [&](const graph::Value& value, const graph::Parameter& parameter, bool) {
    count += elements_for_a_token(config, parameter.role, value.shape);
  });
  return static_cast<int64_t>(std::llround(count));
}

std::map<std::string, graph::ParameterRole> parameter_roles(const ModelConfig& config) {
  std::map<std::string, graph::ParameterRole> roles;
  visit_parameters(config, [&](const graph::Value& value, const graph::Parameter& parameter, bool) {
    roles.emplace(value.name, parameter.role);
  });
  return roles;
}

std::map<std::string, Shape> parameter_shapes(const ModelConfig& config) {
  std::map<std::string, Shape> shapes;
  visit_parameters(config, [&](const graph::Value& value, const graph::Parameter&, bool) {
    shapes.emplace(value.name, value.shape);
  });
  return shapes;
}

namespace {

// Keys that a row sees: the mean over a sequence, summed over a stack's layers.
double keys_seen(const ModelConfig& config, int64_t layers, int64_t length, bool causal) {
  const auto all = static_cast<double>(length);
  double keys = 0;
  for (int64_t i = 0; i < layers; ++i) {
    if (!config.has_attention(i)) continue;
    // The mean is T / 2 with the causal mask, and W (1 - W / 2T) with a window of W.
    const bool windowed = causal && config.sliding_window.at(i);
    const auto window = windowed ? static_cast<double>(config.sliding_window.size) : all;
    const bool in_chunks = windowed && config.sliding_window.chunked;
    keys += !causal         ? all
            : window >= all ? all / 2
            : in_chunks     ? window / 2
                            : window * (1 - window / (2 * all));
  }
  return keys;
}

}  // namespace

double training_flops_per_token(const ModelConfig& config, int64_t sequence_length, int64_t target_length,
                                double target_share) {
  // Forward: two operations for each element of a matrix, and for each token two matmuls with one
  // multiply-add per visible key and element. Backward: twice that.
  double of_source = 0, of_target = 0;  // matrix elements per token of the encoder, of the decoder
  visit_parameters(config, [&](const graph::Value& value, const graph::Parameter& parameter, bool is_head) {
    if (!is_matrix(parameter.role) || (is_table(parameter.role) && !is_head)) return;
    const bool source = parameter.of_encoder || parameter.role == graph::ParameterRole::kCrossKeyValue;
    // Layers that predict further tokens read the same head.
    const auto times = is_head ? target_share * static_cast<double>(1 + config.predict_layers) : 1.0;
    (source ? of_source : of_target) += times * elements_for_a_token(config, parameter.role, value.shape);
  });
  const double of_keys = 6 * static_cast<double>(config.q_width() + config.value_width());
  if (config.architecture != Architecture::kEncoderDecoder) {
    const bool causal = config.architecture == Architecture::kDecoder;
    const double further = static_cast<double>(config.predict_layers * sequence_length) / 2;
    return 6 * of_target + 3 * recurrence_flops_per_token(config) +
           of_keys * (keys_seen(config, config.layers, sequence_length, causal) + further);
  }
  const double targets = static_cast<double>(target_length) / static_cast<double>(sequence_length);
  const double decoder_keys = keys_seen(config, config.layers, target_length, true) +
                              keys_seen(config, config.layers, sequence_length, false);
  return 6 * (of_source + targets * of_target) +
         of_keys *
             (keys_seen(config, config.encoder_layers, sequence_length, false) + targets * decoder_keys);
}

}  // namespace strata::models
