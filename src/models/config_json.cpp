#include "models/config_json.h"

#include <cmath>

#include "base/error.h"

namespace strata::models {

ConfigJson::ConfigJson(const std::string& text, std::string where) : where_(std::move(where)) {
  try {
    json_ = nlohmann::json::parse(text);
  } catch (const nlohmann::json::parse_error& error) {
    throw DataError("[{}] is not valid JSON: {}", where_, error.what());
  }
  if (!json_.is_object())
    throw DataError("[{}] holds no JSON object; a model's config.json was expected", where_);
}

const nlohmann::json* ConfigJson::find(const char* key) const {
  const auto it = json_.find(key);
  return it == json_.end() || it->is_null() ? nullptr : &*it;
}

int64_t ConfigJson::integer(const char* key) const {
  const auto* field = find(key);
  if (field == nullptr) throw DataError("[{}] has no \"{}\"; a positive integer was expected", where_, key);
  if (!field->is_number_integer() || field->get<int64_t>() <= 0) {
    throw DataError("[{}] \"{}\" is {}; a positive integer was expected", where_, key, field->dump());
  }
  return field->get<int64_t>();
}

int64_t ConfigJson::integer_or(const char* key, int64_t fallback) const {
  return find(key) != nullptr ? integer(key) : fallback;
}

double ConfigJson::real_or(const char* key, double fallback) const {
  const auto* field = find(key);
  if (field == nullptr) return fallback;
  if (!field->is_number())
    throw DataError("[{}] \"{}\" is {}; a number was expected", where_, key, field->dump());
  return field->get<double>();
}

bool ConfigJson::boolean_or(const char* key, bool fallback) const {
  const auto* field = find(key);
  if (field == nullptr) return fallback;
  if (!field->is_boolean())
    throw DataError("[{}] \"{}\" is {}; true or false was expected", where_, key, field->dump());
  return field->get<bool>();
}

std::optional<int64_t> ConfigJson::optional_id(const char* key) const {
  const auto* field = find(key);
  if (field == nullptr) return std::nullopt;
  if (field->is_array() && !field->empty()) field = &field->front();
  if (!field->is_number_integer() || field->get<int64_t>() < 0) {
    throw DataError("[{}] \"{}\" is {}; a token id was expected", where_, key, field->dump());
  }
  return field->get<int64_t>();
}

std::string ConfigJson::text_or(const char* key, const std::string& fallback) const {
  const auto* field = find(key);
  if (field == nullptr) return fallback;
  if (!field->is_string())
    throw DataError("[{}] \"{}\" is {}; a text was expected", where_, key, field->dump());
  return field->get<std::string>();
}

void ConfigJson::require_equal(const char* key, const nlohmann::json& wanted) const {
  const auto* field = find(key);
  if (field != nullptr && *field != wanted) {
    throw DataError("[{}] \"{}\" is {}; only {} is supported", where_, key, field->dump(), wanted.dump());
  }
}

void ConfigJson::require_one_of(const char* key, std::initializer_list<const char*> wanted) const {
  const auto* field = find(key);
  if (field == nullptr) return;
  std::string known;
  for (const char* value : wanted) {
    if (*field == value) return;
    known += (known.empty() ? "\"" : ", \"") + std::string(value) + "\"";
  }
  throw DataError("[{}] \"{}\" is {}; supported are {}", where_, key, field->dump(), known);
}

ops::RopeScaling ConfigJson::rope_scaling() const {
  ops::RopeScaling rope;
  rope.theta = real_or("rope_theta", 10000.0);
  const auto* scaling = find("rope_parameters");
  if (scaling == nullptr) scaling = find("rope_scaling");
  if (scaling == nullptr) return rope;
  if (!scaling->is_object())
    throw DataError("[{}] \"rope_scaling\" is {}; an object was expected", where_, scaling->dump());
  auto number = [&](const char* key, double fallback) {
    const auto it = scaling->find(key);
    if (it == scaling->end() || it->is_null()) return fallback;
    if (!it->is_number())
      throw DataError("[{}] \"rope_scaling.{}\" is {}; a number was expected", where_, key, it->dump());
    return it->get<double>();
  };
  rope.theta = number("rope_theta", rope.theta);
  const std::string kind = scaling->value("rope_type", scaling->value("type", std::string("default")));
  if (kind == "default") return rope;
  if (kind == "linear") {
    rope.kind = ops::RopeScaling::Kind::kInterpolated;
  } else if (kind == "llama3") {
    rope.kind = ops::RopeScaling::Kind::kLlama3;
  } else {
    throw DataError(
        "[{}] rope scaling \"{}\" is not supported; known are \"default\", \"linear\" and \"llama3\"", where_,
        kind);
  }
  rope.factor = number("factor", 1);
  rope.low_frequency_factor = number("low_freq_factor", 1);
  rope.high_frequency_factor = number("high_freq_factor", 4);
  rope.original_positions = number("original_max_position_embeddings", 8192);
  if (!(rope.factor > 0) || !(rope.theta > 0)) {
    throw DataError("[{}] rope factor {} and theta {} must be above zero", where_, rope.factor, rope.theta);
  }
  return rope;
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
  json["rope_theta"] = rope.theta;
  if (rope.kind == ops::RopeScaling::Kind::kInterpolated) {
    json["rope_scaling"] = {{"rope_type", "linear"}, {"factor", rope.factor}};
  } else if (rope.kind == ops::RopeScaling::Kind::kLlama3) {
    json["rope_scaling"] = {
        {"rope_type", "llama3"},
        {"factor", rope.factor},
        {"low_freq_factor", rope.low_frequency_factor},
        {"high_freq_factor", rope.high_frequency_factor},
        {"original_max_position_embeddings", static_cast<int64_t>(rope.original_positions)}};
  } else {
    json["rope_scaling"] = nullptr;
  }
}

}  // namespace strata::models
