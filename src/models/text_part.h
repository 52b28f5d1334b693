// Multimodal models whose text model belongs to a supported family: where its config.json and tensors are
// found.
#pragma once

#include <span>
#include <string_view>

#include "models/model.h"

namespace strata::models {

struct TextPart {
  std::string_view model_type;  // of a config.json that contains the family's as text_config
  // A prefix of the text model's tensor names, and the prefix that tensors() has instead.
  struct Name {
    std::string_view whole, own;
  };
  std::span<const Name> names;
  std::span<const std::string_view> ignored_prefixes;  // of all other tensors
};

// nullptr if no multimodal model contains the family.
const TextPart* text_part_of(const Family& family);

}  // namespace strata::models
