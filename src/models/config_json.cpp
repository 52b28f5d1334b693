#include "models/config_json.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/json.h"

namespace strata::models {

namespace {

// The largest count in a config.json; ids and positions are 32-bit numbers.
constexpr int64_t kMostCount = std::numeric_limits<int32_t>::max();

// A field for messages.
std::string shown(const nlohmann::json& field) {
  constexpr size_t kMost = 60;
  const std::string text = dump_json(field, -1, InvalidUtf8::kReplace);
  return text.size() > kMost ? text.substr(0, kMost) + "…" : text;
}

}  // namespace

ConfigJson::ConfigJson(const std::string& text, std::string where) : where_(std::move(where)) {
  try {
    json_ = std::make_shared<const nlohmann::json>(parse_json<nlohmann::json>(text));
  } catch (const nlohmann::json::parse_error& error) {
    throw DataError("[{}] is not valid JSON: {}", where_, error.what());
  } catch (const nlohmann::json::out_of_range&) {
    throw DataError("[{}] contains a number that does not fit into 64 bits", where_);
  }
  if (!json_->is_object())
    throw DataError("[{}] is not a JSON object: expected a model's config.json", where_);
}

const nlohmann::json* ConfigJson::find(const char* key) const {
  const auto it = json_->find(key);
  return it == json_->end() || it->is_null() ? nullptr : &*it;
}

int64_t ConfigJson::integer(const char* key) const {
  const auto* field = find(key);
  if (field == nullptr) throw DataError("[{}] has no \"{}\": expected a positive integer", where_, key);
  if (!field->is_number_integer() || field->get<int64_t>() <= 0 || field->get<int64_t>() > kMostCount) {
    throw DataError("[{}] \"{}\" is {}: expected a positive integer of at most {}", where_, key,
                    shown(*field), kMostCount);
  }
  return field->get<int64_t>();
}

int64_t ConfigJson::integer_or(const char* key, int64_t fallback) const {
  return find(key) != nullptr ? integer(key) : fallback;
}

int64_t ConfigJson::count_or(const char* key, int64_t fallback) const {
  const auto* field = find(key);
  return field != nullptr && *field == 0 ? 0 : integer_or(key, fallback);
}

double ConfigJson::real_or(const char* key, double fallback) const {
  const auto* field = find(key);
  if (field == nullptr) return fallback;
  if (!field->is_number())
    throw DataError("[{}] \"{}\" is {}: expected a number", where_, key, shown(*field));
  return field->get<double>();
}

bool ConfigJson::boolean_or(const char* key, bool fallback) const {
  if (!json_->contains(key)) return fallback;
  const auto* field = find(key);
  if (field == nullptr) return false;
  if (!field->is_boolean())
    throw DataError("[{}] \"{}\" is {}: expected true or false", where_, key, shown(*field));
  return field->get<bool>();
}

bool ConfigJson::flag_or(const char* key, bool fallback) const {
  const auto* field = find(key);
  return field != nullptr && field->is_number() ? count_or(key, 0) != 0 : boolean_or(key, fallback);
}

std::optional<int64_t> ConfigJson::optional_id(const char* key, std::optional<int64_t> fallback) const {
  if (!json_->contains(key)) return fallback;
  const auto* field = find(key);
  if (field == nullptr) return std::nullopt;
  if (field->is_array() && !field->empty()) field = &field->front();
  return id_of(key, *field);
}

int64_t ConfigJson::id_of(const char* key, const nlohmann::json& field) const {
  if (!field.is_number_integer() || field.get<int64_t>() < 0 || field.get<int64_t>() > kMostCount)
    throw DataError("[{}] \"{}\" is {}: expected a token id", where_, key, shown(field));
  return field.get<int64_t>();
}

std::vector<int64_t> ConfigJson::further_ids(const char* key) const {
  std::vector<int64_t> ids;
  const auto* field = find(key);
  if (field == nullptr || !field->is_array()) return ids;
  for (size_t i = 1; i < field->size(); ++i) {
    const int64_t id = id_of(key, (*field)[i]);
    if (id != id_of(key, field->front()) && std::find(ids.begin(), ids.end(), id) == ids.end())
      ids.push_back(id);
  }
  return ids;
}

std::string ConfigJson::text_or(const char* key, const std::string& fallback) const {
  const auto* field = find(key);
  if (field == nullptr) return fallback;
  if (!field->is_string()) throw DataError("[{}] \"{}\" is {}: expected a text", where_, key, shown(*field));
  return field->get<std::string>();
}

void ConfigJson::require_equal(const char* key, const nlohmann::json& wanted) const {
  const auto* field = find(key);
  if (field != nullptr && *field != wanted) {
    throw DataError("[{}] \"{}\" is {}: only {} is supported", where_, key, shown(*field), shown(wanted));
  }
}

double ConfigJson::real_or_none(const char* key, double fallback) const {
  if (!json_->contains(key)) return fallback;
  return real_or(key, 0);
}

std::vector<int64_t> ConfigJson::integers(const char* key) const {
  const auto* field = find(key);
  if (field == nullptr) return {};
  const auto is_count = [](const nlohmann::json& one) {
    return one.is_number_integer() && one.get<int64_t>() >= 0 && one.get<int64_t>() <= kMostCount;
  };
  if (!field->is_array() || !std::all_of(field->begin(), field->end(), is_count))
    throw DataError("[{}] \"{}\" is {}: expected a list of counts", where_, key, shown(*field));
  return field->get<std::vector<int64_t>>();
}

std::vector<double> ConfigJson::reals(const char* key) const {
  const auto* field = find(key);
  if (field == nullptr) return {};
  const auto is_number = [](const nlohmann::json& one) { return one.is_number(); };
  if (!field->is_array() || !std::all_of(field->begin(), field->end(), is_number))
    throw DataError("[{}] \"{}\" is {}: expected a list of numbers", where_, key, shown(*field));
  return field->get<std::vector<double>>();
}

bool ConfigJson::is_text(const char* key) const {
  const auto* field = find(key);
  return field != nullptr && field->is_string();
}

bool ConfigJson::is_null(const char* key) const {
  const auto it = json_->find(key);
  return it != json_->end() && it->is_null();
}

std::vector<std::string> ConfigJson::texts(const char* key) const {
  const auto* field = find(key);
  if (field == nullptr) return {};
  const auto is_text = [](const nlohmann::json& one) { return one.is_string(); };
  if (!field->is_array() || !std::all_of(field->begin(), field->end(), is_text))
    throw DataError("[{}] \"{}\" is {}: expected a list of texts", where_, key, shown(*field));
  return field->get<std::vector<std::string>>();
}

std::optional<std::pair<double, double>> ConfigJson::limits(const char* key) const {
  const auto* field = find(key);
  if (field == nullptr) return std::nullopt;
  // Python writes Infinity, which JSON does not have and parse_json() reads as a text.
  const auto value_of = [](const nlohmann::json& one) -> std::optional<double> {
    if (one.is_number()) return one.get<double>();
    const nlohmann::json text = one.is_object() && one.contains("__float__") ? one["__float__"] : one;
    if (text == "Infinity" || text == "inf") return std::numeric_limits<double>::infinity();
    return std::nullopt;
  };
  if (field->is_array() && field->size() == 2) {
    const auto low = value_of((*field)[0]), high = value_of((*field)[1]);
    if (low && high) return std::pair{*low, *high};
  }
  throw DataError("[{}] \"{}\" is {}: expected a list of two numbers", where_, key, shown(*field));
}

std::optional<ConfigJson> ConfigJson::part(const char* key) const {
  const auto* field = find(key);
  if (field == nullptr) return std::nullopt;
  if (!field->is_object())
    throw DataError("[{}] \"{}\" is {}: expected an object", where_, key, shown(*field));
  return ConfigJson(dump_json(*field), where_ + ": " + key);
}

void ConfigJson::reject(const char* key, const std::string& found, const std::string& expected) const {
  throw DataError("[{}] \"{}\" has {}: expected {}", where_, key, found, expected);
}

ActivationKind ConfigJson::activation(const char* key, const char* fallback) const {
  const std::string name = text_or(key, fallback);
  if (name == "silu" || name == "swish") return ActivationKind::kSilu;
  if (name == "gelu") return ActivationKind::kGeluErf;
  if (name == "gelu_new" || name == "gelu_pytorch_tanh" || name == "gelu_fast")
    return ActivationKind::kGeluTanh;
  if (name == "relu") return ActivationKind::kRelu;
  if (name == "relu2") return ActivationKind::kRelu2;
  throw DataError(
      "[{}] \"{}\" is \"{}\": expected \"silu\", \"gelu\", \"gelu_new\", \"gelu_pytorch_tanh\", "
      "\"relu\" or \"relu2\"",
      where_, key, name);
}

std::string name_of(ActivationKind kind) {
  switch (kind) {
    case ActivationKind::kSilu:
      return "silu";
    case ActivationKind::kGeluTanh:
      return "gelu_pytorch_tanh";
    case ActivationKind::kGeluErf:
      return "gelu";
    case ActivationKind::kRelu:
      return "relu";
    case ActivationKind::kRelu2:
      return "relu2";
  }
  return "silu";
}

const nlohmann::json* ConfigJson::rope_object(const char* layer_type) const {
  const auto* scaling = find("rope_parameters");
  if (scaling == nullptr) return find("rope_scaling");
  if (layer_type == nullptr || !scaling->is_object()) return scaling;
  const auto it = scaling->find(layer_type);
  return it == scaling->end() || it->is_null() ? nullptr : &*it;
}

bool ConfigJson::rotates() const {
  const auto* object = rope_object(nullptr);
  return has("rope_theta") || (object != nullptr && object->is_object() && object->contains("rope_theta"));
}

ops::RopeScaling ConfigJson::rope(int64_t max_positions, double default_theta, const char* layer_type,
                                  const char* theta_key, bool original_outside) const {
  ops::RopeScaling rope;
  rope.theta = real_or(theta_key, default_theta);
  const auto* scaling = rope_object(layer_type);
  if (scaling == nullptr) return rope;
  if (!scaling->is_object())
    throw DataError("[{}] \"rope_scaling\" is {}: expected an object", where_, shown(*scaling));
  auto number = [&](const char* key, double fallback) {
    const auto it = scaling->find(key);
    if (it == scaling->end() || it->is_null()) return fallback;
    if (!it->is_number())
      throw DataError("[{}] \"rope_scaling.{}\" is {}: expected a number", where_, key, shown(*it));
    return it->get<double>();
  };
  auto numbers = [&](const char* key) {
    const auto it = scaling->find(key);
    if (it == scaling->end() || !it->is_array() || it->empty() ||
        !std::all_of(it->begin(), it->end(), [](const auto& n) { return n.is_number() && n > 0; })) {
      throw DataError("[{}] \"rope_scaling.{}\" is {}: expected a list of positive numbers", where_, key,
                      it == scaling->end() ? "missing" : shown(*it));
    }
    return it->template get<std::vector<double>>();
  };
  rope.theta = number("rope_theta", rope.theta);
  const std::string kind = scaling->value("rope_type", scaling->value("type", std::string("default")));
  // The original context length: in the object, next to it (Phi-3), or else the current one.
  rope.original_positions =
      number("original_max_position_embeddings",
             real_or("original_max_position_embeddings", static_cast<double>(max_positions)));
  if (original_outside)
    rope.original_positions = real_or("original_max_position_embeddings", rope.original_positions);
  const double ratio = static_cast<double>(max_positions) / rope.original_positions;
  rope.mscale_all_dim = number("mscale_all_dim", 0);
  using Kind = ops::RopeScaling::Kind;
  if (kind == "default") {
    return rope;
  } else if (kind == "linear") {
    rope.kind = Kind::kInterpolated;
    rope.factor = number("factor", 1);
  } else if (kind == "dynamic") {
    rope.kind = Kind::kDynamic;
    rope.factor = number("factor", 1);
  } else if (kind == "llama3") {
    rope.kind = Kind::kLlama3;
    rope.factor = number("factor", 1);
    rope.low_frequency_factor = number("low_freq_factor", 1);
    rope.high_frequency_factor = number("high_freq_factor", 4);
    rope.original_positions = number("original_max_position_embeddings", 8192);
  } else if (kind == "yarn") {
    rope.kind = Kind::kYarn;
    rope.factor = number("factor", ratio);
    rope.beta_fast = number("beta_fast", 32);
    rope.beta_slow = number("beta_slow", 1);
    rope.whole_pairs = scaling->value("truncate", true);
    const auto grown = [&](double scale) {
      return rope.factor <= 1 ? 1.0 : 0.1 * scale * std::log(rope.factor) + 1;
    };
    const double one = rope.mscale = number("mscale", 0), all = rope.mscale_all_dim;
    rope.attention_factor =
        number("attention_factor", one != 0 && all != 0 ? grown(one) / grown(all) : grown(1));
  } else if (kind == "longrope" || kind == "su") {
    rope.kind = Kind::kLongRope;
    rope.short_factors = numbers("short_factor");
    rope.long_factors = numbers("long_factor");
    rope.factor = number("factor", ratio);
    rope.attention_factor = number(
        "attention_factor",
        rope.factor <= 1 ? 1 : std::sqrt(1 + std::log(rope.factor) / std::log(rope.original_positions)));
  } else {
    throw DataError(
        "[{}] rope scaling \"{}\" is not supported: expected \"default\", \"linear\", \"dynamic\", "
        "\"llama3\", "
        "\"yarn\" or \"longrope\"",
        where_, kind);
  }
  if (!(rope.factor > 0) || !(rope.theta > 0) || !(rope.original_positions > 0)) {
    throw DataError("[{}] rope factor {}, theta {} and original positions {} must be above zero", where_,
                    rope.factor, rope.theta, rope.original_positions);
  }
  return rope;
}

double ConfigJson::partial_rotary_factor(double fallback, const char* key) const {
  double share = real_or(key, fallback);
  if (const auto* scaling = rope_object(nullptr); scaling != nullptr && scaling->is_object()) {
    const auto it = scaling->find("partial_rotary_factor");
    if (it != scaling->end() && it->is_number()) {
      share = it->get<double>();
      key = "partial_rotary_factor";
    }
  }
  if (!(share > 0 && share <= 1))
    throw DataError("[{}] \"{}\" is {}: expected a number above 0, at most 1", where_, key, share);
  return share;
}

void ConfigJson::read_layer_types(int64_t layers, SlidingWindow& window) const {
  const auto* types = find("layer_types");
  if (types == nullptr) return;
  if (!types->is_array() || static_cast<int64_t>(types->size()) != layers) {
    throw DataError("[{}] \"layer_types\" has {} entries: expected one for each of {} layers", where_,
                    types->size(), layers);
  }
  std::vector<bool> windowed;
  for (const auto& type : *types) {
    if (type != "sliding_attention" && type != "full_attention") {
      throw DataError(
          "[{}] \"layer_types\" contains {}: expected \"full_attention\" or \"sliding_attention\"", where_,
          dump_json(type));
    }
    windowed.push_back(type == "sliding_attention");
  }
  if (window.size == 0) {
    if (std::find(windowed.begin(), windowed.end(), true) != windowed.end())
      throw DataError("[{}] \"layer_types\" has sliding_attention, but there is no \"sliding_window\"",
                      where_);
    return;
  }
  for (int64_t i = 0; i < layers; ++i) {
    if (window.at(i) == windowed[static_cast<size_t>(i)]) continue;
    window.layers = std::move(windowed);
    return;
  }
}

void ConfigJson::require_layer_types(const char* name, int64_t layers, const SlidingWindow& window) const {
  const auto* types = find("layer_types");
  if (types == nullptr) return;
  if (!types->is_array() || static_cast<int64_t>(types->size()) != layers) {
    throw DataError("[{}] \"layer_types\" has {} entries: expected one for each of {} layers", where_,
                    types->size(), layers);
  }
  for (int64_t i = 0; i < layers; ++i) {
    const std::string expected = window.at(i) ? name : "full_attention";
    const nlohmann::json& found = (*types)[static_cast<size_t>(i)];
    if (found != expected) {
      throw DataError("[{}] \"layer_types\" has {} for layer {}: only \"{}\" is supported there", where_,
                      shown(found), i, expected);
    }
  }
}

std::vector<std::pair<std::string, double>> ConfigJson::dropout() const {
  std::vector<std::pair<std::string, double>> found;
  for (const auto& [key, value] : json_->items()) {
    const bool named = key.find("dropout") != key.npos || key.ends_with("_pdrop");
    if (!named || value.is_null()) continue;
    const double rate = real_or(key.c_str(), 0);
    if (!(rate >= 0 && rate <= 1))
      throw DataError("[{}] \"{}\" is {}: expected a number from 0 to 1", where_, key, rate);
    if (rate > 0) found.emplace_back(key, rate);
  }
  return found;
}

nlohmann::ordered_json id_json(const std::optional<int64_t>& id) {
  return id ? nlohmann::ordered_json(*id) : nlohmann::ordered_json();
}

std::string torch_name_of(DType dtype) {
  switch (dtype) {
    case DType::kBF16:
      return "bfloat16";
    case DType::kF16:
      return "float16";
    default:
      return "float32";
  }
}

void write_rope(nlohmann::ordered_json& json, const ops::RopeScaling& rope) {
  using Kind = ops::RopeScaling::Kind;
  json["rope_theta"] = rope.theta;
  const auto original = static_cast<int64_t>(rope.original_positions);
  switch (rope.kind) {
    case Kind::kUnscaled:
      json["rope_scaling"] = nullptr;
      break;
    case Kind::kInterpolated:
      json["rope_scaling"] = {{"rope_type", "linear"}, {"factor", rope.factor}};
      break;
    case Kind::kDynamic:
      json["rope_scaling"] = {{"rope_type", "dynamic"}, {"factor", rope.factor}};
      break;
    case Kind::kLlama3:
      json["rope_scaling"] = {{"rope_type", "llama3"},
                              {"factor", rope.factor},
                              {"low_freq_factor", rope.low_frequency_factor},
                              {"high_freq_factor", rope.high_frequency_factor},
                              {"original_max_position_embeddings", original}};
      break;
    case Kind::kYarn:
      json["rope_scaling"] = {{"rope_type", "yarn"},
                              {"factor", rope.factor},
                              {"beta_fast", rope.beta_fast},
                              {"beta_slow", rope.beta_slow},
                              {"truncate", rope.whole_pairs},
                              {"attention_factor", rope.attention_factor},
                              {"original_max_position_embeddings", original}};
      break;
    case Kind::kLongRope:
      json["rope_scaling"] = {{"rope_type", "longrope"},
                              {"factor", rope.factor},
                              {"short_factor", rope.short_factors},
                              {"long_factor", rope.long_factors},
                              {"attention_factor", rope.attention_factor},
                              {"original_max_position_embeddings", original}};
      break;
  }
  if (rope.kind == Kind::kUnscaled) return;
  if (rope.mscale != 0) json["rope_scaling"]["mscale"] = rope.mscale;
  if (rope.mscale_all_dim != 0) json["rope_scaling"]["mscale_all_dim"] = rope.mscale_all_dim;
}

void write_rope_of_windows(nlohmann::ordered_json& json, const ops::RopeScaling& full,
                           const ops::RopeScaling& windows) {
  const auto entry = [](const ops::RopeScaling& rope) {
    nlohmann::ordered_json keys;
    write_rope(keys, rope);
    nlohmann::ordered_json one = keys["rope_scaling"];
    if (one.is_null()) one = {{"rope_type", "default"}};
    one["rope_theta"] = rope.theta;
    return one;
  };
  json.erase("rope_theta");
  json.erase("rope_scaling");
  json["rope_parameters"] = {{"full_attention", entry(full)}, {"sliding_attention", entry(windows)}};
}

nlohmann::ordered_json layer_types_json(const ModelConfig& config) {
  auto types = nlohmann::ordered_json::array();
  for (int64_t i = 0; i < config.layers; ++i)
    types.push_back(config.sliding_window.at(i) ? "sliding_attention" : "full_attention");
  return types;
}

}  // namespace strata::models
