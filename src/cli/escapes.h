// Escapes for command-line texts that cannot be typed directly.
#pragma once

#include <string>
#include <string_view>

namespace strata::cli {

// Replaces "\n", "\r", "\t", "\0", "\\", "\"", "\'", "\xHH" (a byte) and "\uXXXX" (two for a UTF-16 pair) by
// the characters that they stand for. Throws a ConfigError that names `option` for any other backslash.
std::string unescaped(std::string_view text, std::string_view option);

}  // namespace strata::cli
