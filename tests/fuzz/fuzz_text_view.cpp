// Any valid UTF-8: words cover the text between white space in order, by both rules; lines concatenate to the
// text; a reused view returns the same as a new one.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "data/text/characters.h"
#include "data/text/text_view.h"

namespace {

using namespace strata::data;

void require(bool condition) {
  if (!condition) std::abort();
}

// Replaces ill-formed bytes.
std::string valid_utf8(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  std::string out;
  for (const char *at = bytes.data(), *end = at + size; at < end;) {
    const Character c = decode_utf8(at, end);
    std::string again;
    const bool surrogate = c.value >= 0xD800 && c.value < 0xE000;
    append_code_point(again, surrogate ? 0xFFFD : c.value);
    out += again;
    at += c.size;
  }
  return out;
}

void check_words(std::string_view text, std::span<const Word> words) {
  const uint8_t* table = character_table();
  const char* at = text.data();
  const auto only_space = [&](const char* end) {
    for (; at < end;) {
      const Character c = decode_utf8(at, end);
      require(table[c.value] & kSpaceBit);
      at += c.size;
    }
  };
  for (const Word& word : words) {
    require(!word.bytes.empty() && word.bytes.data() >= at);
    only_space(word.bytes.data());
    require(word.code_points == count_code_points(word.bytes));
    at = word.bytes.data() + word.bytes.size();
  }
  only_space(text.data() + text.size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static TextView used;
  const std::string text = valid_utf8(data, size);
  TextView fresh;
  for (TextView* view : {&fresh, &used}) {
    std::string copy = text;
    view->reset(copy);
    check_words(view->bytes(), view->words(WordRule::kWhitespace));
    check_words(view->bytes(), view->words(WordRule::kSpacy));
    check_words(view->simplified(), view->simplified_words(WordRule::kSpacy));
    size_t bytes = 0;
    for (const std::string_view line : view->split_lines()) bytes += line.size() + 1;
    require(bytes == text.size() + 1);
    std::vector<std::string_view> sentences;
    view->split_sentences(sentences);
    require(static_cast<int64_t>(sentences.size()) == view->count_sentences(view->bytes(), int64_t{1} << 60));
  }
  require(fresh.words(WordRule::kSpacy).size() == used.words(WordRule::kSpacy).size());
  require(fresh.simplified() == used.simplified());
  return 0;
}
