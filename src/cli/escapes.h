// Texts on the command line that cannot be typed there as they are.
#pragma once

#include <string>
#include <string_view>

namespace strata::cli {

// "\n", "\r", "\t", "\0", "\\", "\"", "\'", "\xHH" (a byte) and "\uXXXX" (two of them where UTF-16 takes a
// pair) become what they stand for. ConfigError that names `option` for any other backslash.
std::string unescaped(std::string_view text, std::string_view option);

}  // namespace strata::cli
