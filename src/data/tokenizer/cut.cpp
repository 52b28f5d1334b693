#include "data/tokenizer/cut.h"

#include <algorithm>

#include "data/tokenizer/unicode.h"

namespace strata::data {
namespace {

bool has_class(std::string_view text, size_t at, uint8_t classes) {
  return (class_table()[decode_code_point(text.data() + at, text.data() + text.size()).value] & classes) != 0;
}

// Whether the character that ends at `end` is valid and no white space.
bool ends_in_ink(std::string_view text, size_t end) {
  for (size_t size = 1; size <= std::min<size_t>(4, end); ++size) {
    const CodePoint c = decode_code_point(text.data() + end - size, text.data() + end);
    if (c.size == size && c.value < kInvalidByteBase) return (class_table()[c.value] & kSpace) == 0;
  }
  return false;
}

}  // namespace

size_t find_cut(std::string_view text, size_t from) {
  for (size_t at = std::max<size_t>(from, 1); at < text.size(); ++at) {
    if (text[at] == ' ' && at + 1 < text.size() && has_class(text, at + 1, kLetter) && ends_in_ink(text, at))
      return at;
    if (text[at - 1] == '\n' && has_class(text, at, kLetter) && ends_in_ink(text, at - 1)) return at;
  }
  return text.size();
}

bool may_cross_cut(const AddedToken& token) {
  const auto is_break = [](char c) { return c == ' ' || c == '\n'; };
  const std::string& text = token.content;
  if (token.lstrip || token.rstrip) return true;
  if (token.single_word && std::any_of(text.begin(), text.end(), is_break)) return true;
  for (size_t i = 0; i + 1 < text.size(); ++i) {
    if (is_break(text[i]) != is_break(text[i + 1])) return true;
  }
  return false;
}

}  // namespace strata::data
