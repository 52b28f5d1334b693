// The sizes that transformers' configuration classes have where a config.json leaves them out.
#pragma once

#include <string>

#include "models/model.h"

namespace strata::models {

// The text of a config.json with the keys that it lacks and that the family's class has a size for. What is
// null stays null. Published files rely on it: Gemma 3's name few of their sizes.
std::string with_class_sizes(const Family& family, const std::string& text);

}  // namespace strata::models
