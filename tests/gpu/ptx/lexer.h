// Splits PTX text into tokens. Drops comments and white space.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ptx/types.h"

namespace strata::gpu_tests {

struct Token {
  enum class Kind : uint8_t {
    kWord,    // add, %r1, $L__BB0_1, _Z1vPf
    kDotted,  // .f32, .L2::128B: a directive or a modifier, text without the dot
    kNumber,  // 12, 0x1F, 0f3F800000, 9.0
    kString,  // text without the quotes
    kSymbol,  // one character
    kEnd,
  };
  Kind kind = Kind::kEnd;
  std::string_view text;
  int line = 0;
  // True without white space before the token: "%tid.x", not "ret .x".
  bool joined = false;

  bool is(char symbol) const { return kind == Kind::kSymbol && text[0] == symbol; }
  bool is_dotted(std::string_view name) const { return kind == Kind::kDotted && text == name; }
};

// Tokens point into `text`, which must outlive them. The last one is kEnd. Throws LoadError.
std::vector<Token> tokenize(std::string_view text, const std::string& file);

}  // namespace strata::gpu_tests
