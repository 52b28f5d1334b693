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

}  // namespace strata::config
