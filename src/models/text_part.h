// Models of texts and pictures whose text model is of a family here: its part of their config.json and files.
#pragma once

#include <span>
#include <string_view>

#include "models/model.h"

namespace strata::models {

struct TextPart {
  std::string_view model_type;  // of a config.json that holds the family's as text_config
  // How the names of the text model's tensors begin, and what the names of tensors() have instead.
  struct Name {
    std::string_view whole, own;
  };
  std::span<const Name> names;
  std::span<const std::string_view> beside;  // what the names of all others begin with: they are left out
};

// nullptr: the family is no part of any.
const TextPart* text_part_of(const Family& family);

}  // namespace strata::models
