// Converts configuration values to JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "base/toml.h"

namespace strata::config {

// Numbers, booleans, lists and tables map directly. Throws ConfigError for numbers that JSON cannot represent
// (nan, inf).
nlohmann::ordered_json to_json(const ConfigValue& value);

}  // namespace strata::config
