// Values of a configuration as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "base/toml.h"

namespace strata::config {

// Numbers, true and false, lists and tables as such. ConfigError for a number that JSON cannot say (nan,
// inf).
nlohmann::ordered_json to_json(const ConfigValue& value);

}  // namespace strata::config
