// The functions of Python that prepare the texts of evaluation tasks.
#pragma once

#include <string>
#include <string_view>

namespace strata::evaluation {

// str.capitalize(): the first character in title case, all others in lower case.
std::string capitalized(std::string_view text);
// HellaSwag's cleaning: white space at the ends and the marks of WikiHow, "[header]" and the like, are taken
// out.
std::string without_wikihow_marks(std::string_view text);
// The text without its last word, and that word, cut at the last single space as str.split(" ") does.
struct LastWord {
  std::string before, word;
};
LastWord split_last_word(std::string_view text);

}  // namespace strata::evaluation
