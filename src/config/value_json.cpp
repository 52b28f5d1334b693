#include "config/value_json.h"

#include <cmath>

#include "base/error.h"
#include "base/json.h"

namespace strata::config {

using Json = nlohmann::ordered_json;

Json to_json(const ConfigValue& value) {
  if (const auto* boolean = value.get_if<bool>()) return *boolean;
  if (const auto* integer = value.get_if<int64_t>()) return *integer;
  if (const auto* number = value.get_if<double>()) {
    if (!std::isfinite(*number))
      throw ConfigError("[{}] found {}, expected a finite number", to_string(value.origin), *number);
    return *number;
  }
  if (const auto* text = value.get_if<std::string>()) return *text;
  if (const auto* items = value.get_if<ConfigValue::Array>()) {
    Json out = Json::array();
    for (const ConfigValue& item : *items) out.push_back(to_json(item));
    return out;
  }
  Json out = Json::object();
  for (const ConfigEntry& entry : std::get<ConfigValue::Table>(value.data))
    out[entry.key] = to_json(entry.value);
  return out;
}

namespace {

ConfigValue nested_value(const Json& json, int depth) {
  constexpr int kDeepest = 16;
  if (depth > kDeepest) throw ConfigError("found lists nested deeper than {}", kDeepest);
  ConfigValue out;
  if (json.is_boolean()) {
    out.data = json.get<bool>();
  } else if (json.is_number_unsigned() && json.get<uint64_t>() > uint64_t{INT64_MAX}) {
    throw ConfigError("found {}, expected a number of at most 64 bits", json.get<uint64_t>());
  } else if (json.is_number_integer()) {
    out.data = json.get<int64_t>();
  } else if (json.is_number()) {
    out.data = json.get<double>();
  } else if (json.is_string()) {
    out.data = json.get<std::string>();
  } else if (json.is_array()) {
    ConfigValue::Array items;
    for (const Json& item : json) items.push_back(nested_value(item, depth + 1));
    out.data = std::move(items);
  } else if (json.is_object()) {
    ConfigValue::Table entries;
    for (const auto& [key, value] : json.items()) entries.push_back({key, nested_value(value, depth + 1)});
    out.data = std::move(entries);
  } else {
    throw ConfigError("found null, expected a value");
  }
  return out;
}

}  // namespace

ConfigValue value_from_json(const Json& value) {
  return nested_value(value, 0);
}

}  // namespace strata::config
