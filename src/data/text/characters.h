// Code points as the published text filters see them: classes, white space, line ends and lower case of
// CPython (Unicode 14.0, as in Python 3.11), datatrove's lists of punctuation. The tokenizers' classes
// (data/tokenizer/unicode.h) are those of another library and another version of Unicode.
//
// Texts are valid UTF-8 here. Ill-formed bytes give wrong code points, never a read outside the text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/text/byte_runs.h"

namespace strata::data {

enum CharacterBit : uint8_t {
  kSpaceBit = 1,              // str.isspace(), and \s of re
  kAlphaBit = 2,              // str.isalpha(): category L
  kPunctuationBit = 4,        // datatrove's PUNCTUATION
  kTerminalBit = 8,           // datatrove's TERMINAL_PUNCTUATION
  kEndMarkBit = 16,           // what ends a sentence for spaCy's sentencizer
  kPunctuationCategory = 32,  // category P
  kNonspacingBit = 64,        // category Mn
  kDecimalBit = 128,          // \p{Nd} of the regex module
};
inline constexpr uint8_t kSymbolBits = kPunctuationBit | kTerminalBit;  // either: PUNCTUATION_SET

// CharacterBits by code point, 0x110000 of them.
const uint8_t* character_table();

struct Character {
  uint32_t value;
  uint32_t size;  // bytes
};

// The code point at `at` (at < end).
inline Character decode_utf8(const char* at, const char* end) {
  const auto byte = [at](int i) { return uint32_t{static_cast<uint8_t>(at[i])}; };
  const uint32_t first = byte(0);
  if (first < 0x80) return {first, 1};
  if (first < 0xE0 && end - at >= 2) return {(first & 0x1F) << 6 | (byte(1) & 0x3F), 2};
  if (first < 0xF0 && end - at >= 3) {
    return {(first & 0xF) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F), 3};
  }
  if (first < 0xF5 && end - at >= 4) {
    const uint32_t value =
        (first & 7) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F);
    return {value < 0x110000 ? value : 0xFFFD, 4};
  }
  return {0xFFFD, 1};
}
// The code point that ends at `at` (begin < at).
inline Character decode_utf8_before(const char* begin, const char* at) {
  const char* start = at - 1;
  while (start > begin && at - start < 4 && (static_cast<uint8_t>(*start) & 0xC0) == 0x80) --start;
  return {decode_utf8(start, at).value, static_cast<uint32_t>(at - start)};
}

void append_code_point(std::string& out, uint32_t code_point);
int64_t count_code_points(std::string_view text);

// str.strip() and its halves.
std::string_view strip_left(std::string_view text);
std::string_view strip_right(std::string_view text);
inline std::string_view strip(std::string_view text) {
  return strip_left(strip_right(text));
}

// str.lower(): the full mapping, final sigma included.
void lower(std::string_view text, std::string& out);

// datatrove's simplify_text, applied to texts before they are compared: lower case, numbers as 0, punctuation
// and runs of white space as one space, decomposed without nonspacing marks. Two consecutive spacing marks
// keep their order, although normalisation might swap them.
void simplify(std::string_view text, std::string& out);

// simplify() for long texts, with vector instructions. To be used for one text after another.
class Simplifier {
 public:
  Simplifier();
  void simplify(std::string_view text, std::string& out);

 private:
  AsciiSet separators_, digits_;
  std::vector<uint32_t> edges_;
  std::vector<uint64_t> slow_;
};

}  // namespace strata::data
