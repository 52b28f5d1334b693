// The phrases that C4 looks for in lower-cased lines.
#pragma once

#include <string_view>

namespace strata::data {

struct LinePhrases {
  bool lorem_ipsum = false;
  bool javascript = false;
  bool policy = false;  // terms of use, privacy and cookie policy, uses cookies, use of cookies, use cookies
};

LinePhrases find_phrases(std::string_view lowered);

// False only if no line of the text has any of them, ignoring case. One fast pass.
bool may_have_phrases(std::string_view text);

}  // namespace strata::data
