// The Python functions that prepare the texts of evaluation tasks.
#pragma once

#include <string>
#include <string_view>

namespace strata::evaluation {

// str.capitalize(): the first character in title case, all others in lower case.
std::string capitalized(std::string_view text);
// HellaSwag's cleaning: removes white space at the ends and WikiHow's marks, such as "[header]".
std::string without_wikihow_marks(std::string_view text);
// The text without its last word, and that word, split at the last space like str.split(" ").
struct LastWord {
  std::string before, word;
};
LastWord split_last_word(std::string_view text);

}  // namespace strata::evaluation
