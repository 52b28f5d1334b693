#include "data/tokenizer/fertility.h"

#include "data/tokenizer/unicode.h"

namespace strata::data {

void Fertility::add(const Fertility& other) {
  documents += other.documents;
  bytes += other.bytes;
  words += other.words;
  tokens += other.tokens;
}

int64_t count_spaced_words(std::string_view text) {
  int64_t words = 0;
  bool inside = false;
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = decode_code_point(text.data() + at, text.data() + text.size());
    const bool space = is_white_space(c.value);
    words += !space && !inside;
    inside = !space;
    at += c.size;
  }
  return words;
}

Fertility measure_fertility(const Tokenizer& tokenizer, std::string_view text) {
  return {.documents = 1,
          .bytes = static_cast<int64_t>(text.size()),
          .words = count_spaced_words(text),
          .tokens = static_cast<int64_t>(tokenizer.encode(text).size())};
}

}  // namespace strata::data
