// Oniguruma, the engine of the reference library, as the oracle for our expressions.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "data/tokenizer/split.h"

namespace strata::data {

// All matches in a text, as the reference library finds them; nothing if Oniguruma refuses the expression or
// abandons the search. Bytes that are not UTF-8 are symbols of no class, and classes are those of unicode.h:
// Debian's Oniguruma knows an older Unicode than the reference library.
std::optional<std::vector<Piece>> oniguruma_matches(std::string_view pattern, std::string_view text);

}  // namespace strata::data
