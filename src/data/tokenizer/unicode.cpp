#include "data/tokenizer/unicode.h"

#include <simdjson.h>
#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <memory>

namespace strata::data {
namespace {

enum Category : uint8_t {
  kLu,
  kLl,
  kLt,
  kLm,
  kLo,
  kMn,
  kMc,
  kMe,
  kNd,
  kNl,
  kNo,
  kPc,
  kPd,
  kPs,
  kPe,
  kPi,
  kPf,
  kPo,
  kSm,
  kSc,
  kSk,
  kSo,
  kZs,
  kZl,
  kZp,
  kCc,
  kCf,
  kCo,
  kCs,
  kCn
};

constexpr std::string_view kCategoryNames[] = {"Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl",
                                               "No", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "Sm", "Sc",
                                               "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Co", "Cs", "Cn"};

struct LowerRange {
  uint32_t first;
  uint32_t last;
  uint32_t step;
  int32_t delta;
};

#include "data/tokenizer/unicode_tables.inc"

static_assert(std::size(kCategoryStart) == std::size(kCategory));

uint8_t class_bits(Category category) {
  switch (kCategoryNames[category][0]) {
    case 'L':
      if (category == kLu || category == kLt) return kLetter | kUpper;
      if (category == kLl) return kLetter | kLower;
      return kLetter | kUpper | kLower;
    case 'M':
      return kMark | kUpper | kLower;
    case 'N':
      return kNumber;
    case 'P':
      return kPunct;
    case 'S':
      return kSymbol;
    default:
      return 0;
  }
}

constexpr uint32_t kClassTableSize = kInvalidByteBase + 256;

std::unique_ptr<uint8_t[]> make_class_table() {
  auto table = std::make_unique<uint8_t[]>(kClassTableSize);
  for (size_t i = 0; i < std::size(kCategory); ++i) {
    const uint32_t end = i + 1 < std::size(kCategory) ? kCategoryStart[i + 1] : kInvalidByteBase;
    const uint8_t bits = class_bits(kCategory[i]);
    if (bits != 0) std::fill(table.get() + kCategoryStart[i], table.get() + end, bits);
  }
  for (const CodePointRange& range : kWhiteSpace) {
    for (uint32_t c = range.first; c <= range.last; ++c) table[c] |= kSpace;
  }
  return table;
}

std::vector<CodePointRange> category_ranges(std::string_view name) {
  std::vector<CodePointRange> out;
  for (size_t i = 0; i < std::size(kCategory); ++i) {
    if (!kCategoryNames[kCategory[i]].starts_with(name)) continue;
    const uint32_t end = i + 1 < std::size(kCategory) ? kCategoryStart[i + 1] : kInvalidByteBase;
    if (!out.empty() && out.back().last + 1 == kCategoryStart[i]) {
      out.back().last = end - 1;
    } else {
      out.push_back({kCategoryStart[i], end - 1});
    }
  }
  return out;
}

// Length of the longest well-formed sequence, or prefix of one, at `at`; sets `complete` for a whole
// sequence.
uint32_t sequence_length(const char* at, const char* end, bool& complete) {
  const auto byte = [&](int i) { return static_cast<uint8_t>(at[i]); };
  const uint8_t first = byte(0);
  complete = false;
  if (first < 0x80) return complete = true, 1;
  if (first < 0xC2 || first > 0xF4) return 1;
  const uint32_t size = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  // The second byte's range keeps out over-long forms, surrogates and values beyond U+10FFFF.
  const uint8_t low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
  const uint8_t high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
  uint32_t n = 1;
  while (n < size && at + n < end) {
    const uint8_t next = byte(static_cast<int>(n));
    if (n == 1 ? (next < low || next > high) : (next & 0xC0) != 0x80) break;
    ++n;
  }
  complete = n == size;
  return n;
}

}  // namespace

CodePoint detail::decode_long(const char* at, const char* end) {
  bool complete = false;
  const uint32_t size = sequence_length(at, end, complete);
  const auto byte = [&](int i) { return static_cast<uint32_t>(static_cast<uint8_t>(at[i])); };
  if (!complete) return {kInvalidByteBase + byte(0), 1};
  switch (size) {
    case 1:
      return {byte(0), 1};
    case 2:
      return {(byte(0) & 0x1F) << 6 | (byte(1) & 0x3F), 2};
    case 3:
      return {(byte(0) & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F), 3};
    default:
      return {(byte(0) & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F), 4};
  }
}

void append_utf8(std::string& out, uint32_t c) {
  if (c >= kInvalidByteBase) {
    out += static_cast<char>(c - kInvalidByteBase);
  } else {
    utf8proc_uint8_t bytes[4];
    const auto size = utf8proc_encode_char(static_cast<utf8proc_int32_t>(c), bytes);
    out.append(bytes, bytes + size);
  }
}

bool is_valid_utf8(std::string_view text) {
  return simdjson::validate_utf8(text.data(), text.size());
}

std::string replace_invalid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  const char* at = text.data();
  const char* end = at + text.size();
  while (at < end) {
    bool complete = false;
    const uint32_t size = sequence_length(at, end, complete);
    if (complete) {
      out.append(at, size);
    } else {
      out += "\xEF\xBF\xBD";
    }
    at += size;
  }
  return out;
}

const uint8_t* class_table() {
  static const std::unique_ptr<uint8_t[]> table = make_class_table();
  return table.get();
}

bool in_ranges(std::span<const CodePointRange> ranges, uint32_t c) {
  auto it = std::upper_bound(ranges.begin(), ranges.end(), c,
                             [](uint32_t value, const CodePointRange& range) { return value < range.first; });
  return it != ranges.begin() && c <= std::prev(it)->last;
}

bool is_white_space(uint32_t c) {
  return in_ranges(kWhiteSpace, c);
}
bool is_regex_word(uint32_t c) {
  return in_ranges(kRegexWord, c);
}
bool is_added_token_word(uint32_t c) {
  return in_ranges(kAddedTokenWord, c);
}
bool is_split_punctuation(uint32_t c) {
  return in_ranges(kPunctuation, c);
}
bool is_split_numeric(uint32_t c) {
  return in_ranges(kNumeric, c);
}

bool is_bert_removed(uint32_t c) {
  return in_ranges(kBertRemoved, c);
}
bool is_bert_accent(uint32_t c) {
  return in_ranges(kBertAccent, c);
}
bool is_combining_mark(uint32_t c) {
  return in_ranges(kCombiningMark, c);
}

bool is_normalizable(uint32_t c) {
  if (c < 0x300) return true;
  if (c >= kInvalidByteBase || in_ranges(kNotNormalized, c)) return false;
  const auto run = std::upper_bound(std::begin(kCategoryStart), std::end(kCategoryStart), c);
  return kCategory[run - std::begin(kCategoryStart) - 1] != kCn;
}

void append_lower(std::string& out, uint32_t c) {
  if (c < 0x80) {
    out += static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
    return;
  }
  if (c == 0x130) {
    out += "i\xCC\x87";
    return;
  }
  const auto* it =
      std::upper_bound(std::begin(kLowerCase), std::end(kLowerCase), c,
                       [](uint32_t value, const LowerRange& range) { return value < range.first; });
  if (it != std::begin(kLowerCase)) {
    const LowerRange& range = *std::prev(it);
    if (c <= range.last && (c - range.first) % range.step == 0) c += static_cast<uint32_t>(range.delta);
  }
  append_utf8(out, c);
}

size_t grapheme_size(std::string_view text) {
  const char* end = text.data() + text.size();
  CodePoint last = decode_code_point(text.data(), end);
  size_t size = last.size;
  utf8proc_int32_t state = 0;
  while (size < text.size() && last.value < kInvalidByteBase) {
    const CodePoint next = decode_code_point(text.data() + size, end);
    if (next.value >= kInvalidByteBase ||
        utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(last.value),
                                         static_cast<utf8proc_int32_t>(next.value), &state)) {
      break;
    }
    size += next.size;
    last = next;
  }
  return size;
}

std::optional<std::vector<CodePointRange>> property_ranges(std::string_view name) {
  const auto copy = [](std::span<const CodePointRange> ranges) {
    return std::vector<CodePointRange>(ranges.begin(), ranges.end());
  };
  if (name == "w") return copy(kRegexWord);
  if (name == "s") return copy(kWhiteSpace);
  if (name == "d") return category_ranges("Nd");
  if (name.size() == 1 && std::string_view("LMNPSZC").find(name) != name.npos) return category_ranges(name);
  if (std::find(std::begin(kCategoryNames), std::end(kCategoryNames), name) != std::end(kCategoryNames)) {
    return category_ranges(name);
  }
  struct Script {
    std::string_view name;
    std::span<const CodePointRange> ranges;
  };
  static constexpr Script kScripts[] = {
      {"Han", kScriptHan},           {"Hiragana", kScriptHiragana},     {"Katakana", kScriptKatakana},
      {"Hangul", kScriptHangul},     {"Latin", kScriptLatin},           {"Greek", kScriptGreek},
      {"Cyrillic", kScriptCyrillic}, {"Arabic", kScriptArabic},         {"Hebrew", kScriptHebrew},
      {"Thai", kScriptThai},         {"Devanagari", kScriptDevanagari}, {"Bengali", kScriptBengali},
      {"Armenian", kScriptArmenian}, {"Georgian", kScriptGeorgian},     {"Tamil", kScriptTamil},
      {"Telugu", kScriptTelugu}};
  for (const Script& script : kScripts) {
    if (script.name == name) return copy(script.ranges);
  }
  return std::nullopt;
}

std::vector<CodePointRange> complement(std::span<const CodePointRange> ranges) {
  std::vector<CodePointRange> out;
  uint32_t next = 0;
  for (const CodePointRange& range : ranges) {
    if (range.first > next) out.push_back({next, range.first - 1});
    next = range.last + 1;
  }
  if (next <= kLastSymbol) out.push_back({next, kLastSymbol});
  return out;
}

}  // namespace strata::data
