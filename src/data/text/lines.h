// Lines of a text, by Python's two ways of splitting.
#pragma once

#include <string_view>
#include <vector>

namespace strata::data {

// str.split("\n"): one more line than there are newlines.
void split_newlines(std::string_view text, std::vector<std::string_view>& lines);

// str.splitlines(): also at VT, FF, CR, CRLF, FS, GS, RS, NEL, LS and PS; no empty line after a last end.
void split_lines(std::string_view text, std::vector<std::string_view>& lines);

}  // namespace strata::data
