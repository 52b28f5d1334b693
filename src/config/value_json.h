// Converts configuration values to and from JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "base/toml.h"

namespace strata::config {

// Numbers, booleans, lists and tables map directly. Throws ConfigError for numbers that JSON cannot represent
// (nan, inf).
nlohmann::ordered_json to_json(const ConfigValue& value);

// ConfigError for null, for a whole number beyond 64 bits, and for lists and tables nested deeper than 16.
ConfigValue value_from_json(const nlohmann::ordered_json& value);

}  // namespace strata::config
