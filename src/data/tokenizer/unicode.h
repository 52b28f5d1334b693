// Code points and their classes as the Hugging Face tokenizers library sees them (Unicode 16.0), whatever
// version of Unicode the system's libraries know. Bytes that are not UTF-8 are symbols too: each such byte is
// a separate "code point" beyond U+10FFFF, in no class at all (not a letter, digit, mark or space), so that
// every byte string splits and encodes without loss.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace strata::data {

// Bits of the classes that the split patterns ask for.
enum ClassBit : uint8_t {
  kLetter = 1,   // \p{L}
  kNumber = 2,   // \p{N}
  kSpace = 4,    // \s
  kMark = 8,     // \p{M}
  kUpper = 16,   // \p{Lu} \p{Lt} \p{Lm} \p{Lo} \p{M}
  kLower = 32,   // \p{Ll} \p{Lm} \p{Lo} \p{M}
  kPunct = 64,   // \p{P}
  kSymbol = 128  // \p{S}
};

inline constexpr uint32_t kInvalidByteBase = 0x110000;  // the invalid byte b is the code point base + b
inline constexpr uint32_t kLastSymbol = kInvalidByteBase + 255;

struct CodePoint {
  uint32_t value;
  uint32_t size;  // bytes
};

namespace detail {
CodePoint decode_long(const char* at, const char* end);
}

// The code point at `at` (at < end). An ill-formed sequence yields one symbol for its first byte.
inline CodePoint decode_code_point(const char* at, const char* end) {
  const auto first = static_cast<uint8_t>(*at);
  if (first < 0x80) return {first, 1};
  return detail::decode_long(at, end);
}

void append_utf8(std::string& out, uint32_t code_point);  // a code point or the symbol of an invalid byte
bool is_valid_utf8(std::string_view text);
// The text with each maximal ill-formed part replaced by U+FFFD, as Unicode recommends (and Rust does).
std::string replace_invalid_utf8(std::string_view text);

// ClassBits by code point, for every value that decode_code_point returns.
const uint8_t* class_table();

struct CodePointRange {
  uint32_t first;
  uint32_t last;
};
bool in_ranges(std::span<const CodePointRange> ranges, uint32_t code_point);

bool is_white_space(uint32_t code_point);        // \s
bool is_regex_word(uint32_t code_point);         // \w
bool is_added_token_word(uint32_t code_point);   // what single_word of an added token looks at
bool is_split_punctuation(uint32_t code_point);  // the Punctuation pre-tokenizer
bool is_split_numeric(uint32_t code_point);      // the Digits pre-tokenizer
bool is_bert_removed(uint32_t code_point);       // what BertNormalizer's clean_text drops
bool is_bert_accent(uint32_t code_point);        // dropped by its strip_accents after NFD
bool is_combining_mark(uint32_t code_point);     // what StripAccents drops
bool is_normalizable(uint32_t code_point);       // known to the library's normalizers
void append_lower(std::string& out, uint32_t code_point);
size_t grapheme_size(
    std::string_view text);  // of the first extended grapheme cluster of a text that is not empty

// The code points of a property of regular expressions, sorted: general categories (L, Lu, …), scripts (Han,
// …) and the shorthands "w", "s", "d". Nothing for a name that is not known.
std::optional<std::vector<CodePointRange>> property_ranges(std::string_view name);
// All other symbols, those of invalid bytes included.
std::vector<CodePointRange> complement(std::span<const CodePointRange> ranges);

}  // namespace strata::data
