// Special tokens that are spelled out in a text: "</s>" in a web page, for example.
#pragma once

#include <cstdint>
#include <map>

namespace strata::data {

// What becomes of one: the token itself, as Hugging Face tokenizers have it; letters like any others (their
// split_special_tokens); or an error.
enum class SpecialInText { kToken, kText, kRefuse };

// How often texts spelled special tokens out, by id.
using SpecialCounts = std::map<int32_t, int64_t>;

}  // namespace strata::data
