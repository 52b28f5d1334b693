// Whether bytes that are to be a text are one.
#pragma once

#include <string>
#include <string_view>

namespace strata::data {

// What the first bytes of a file tell that is no text in UTF-8: "UTF-16 …", "a binary file …"; "" for one
// that may be. As grep and git do, a NUL near the beginning makes a file binary.
std::string fault_of_text(std::string_view content);

}  // namespace strata::data
