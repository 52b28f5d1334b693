// Models of texts and pictures whose text model is of a family here: its part of their config.json and files.
#pragma once

#include <span>
#include <string_view>

#include "models/model.h"

namespace strata::models {

struct TextPart {
  std::string_view model_type;  // of a config.json that holds the family's as text_config
  // A prefix of the text model's tensor names, and the prefix that tensors() has instead.
  struct Name {
    std::string_view whole, own;
  };
  std::span<const Name> names;
  std::span<const std::string_view> beside;  // prefixes of all other tensors, which are ignored
};

// nullptr: the family is not part of any.
const TextPart* text_part_of(const Family& family);

}  // namespace strata::models
