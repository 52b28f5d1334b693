// The default sizes of transformers' configuration classes, for keys that a config.json omits.
#pragma once

#include <string>

#include "models/model.h"

namespace strata::models {

// The text of a config.json, with missing keys added if the family's class has a default size for them. Null
// values stay null. Published files rely on it: Gemma 3's contain few of their sizes.
std::string with_class_sizes(const Family& family, const std::string& text);

}  // namespace strata::models
