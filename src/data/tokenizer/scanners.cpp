#include "data/tokenizer/scanners.h"

#include <bit>
#include <cstring>

#include "base/error.h"
#include "data/tokenizer/unicode.h"

namespace strata::data {
namespace {

// The differences between the patterns.
struct Rules {
  bool gpt2 = false;         // only a space may be a prefix; no newline rule; lower-case contractions
  bool upper_lower = false;  // o200k's words: [upper]*[lower]+ or [upper]+[lower]*
  bool contractions = true;  // 's 't 're 've 'm 'll 'd: separate pieces, or the end of an o200k word
  bool marks_in_words = false;
  int digits = 3;           // longest run of digits in a piece; 0: no limit
  bool slash_tail = false;  // '/' may follow punctuation as newlines do
};

constexpr Rules kGpt2Rules{.gpt2 = true, .digits = 0};
constexpr Rules kCl100kRules{};
constexpr Rules kQwen2Rules{.digits = 1};
constexpr Rules kQwen35Rules{.marks_in_words = true, .digits = 1};
constexpr Rules kNanochat2Rules{.digits = 2};
constexpr Rules kO200kRules{.upper_lower = true, .slash_tail = true};
constexpr Rules kTekkenRules{.upper_lower = true, .contractions = false, .digits = 1, .slash_tail = true};

bool is_newline(uint32_t c) {
  return c == '\n' || c == '\r';
}

template <Rules kRules>
class Scanner {
 public:
  explicit Scanner(const char* end) : end_(end), classes_(class_table()) {}

  // The end of the piece that starts at p (p < end).
  const char* next(const char* p) const {
    const CodePoint c = decode_code_point(p, end_);
    const uint8_t bits = classes_[c.value];
    if constexpr (kRules.gpt2) return next_gpt2(p, c, bits);
    if constexpr (kRules.contractions && !kRules.upper_lower) {
      if (c.value == '\'') {
        if (const size_t size = contraction(p)) return p + size;
      }
    }
    if constexpr (kRules.upper_lower) {
      if (const char* word = mixed_case_word(p, c, bits)) return word;
    } else {
      if (bits & kWord) return skip(p + c.size, kWord);
      if (!(bits & (kLetter | kNumber)) && !is_newline(c.value) && p + c.size < end_) {
        const CodePoint second = decode_code_point(p + c.size, end_);
        if (classes_[second.value] & kWord) return skip(p + c.size + second.size, kWord);
      }
    }
    if (bits & kNumber) return digits(p + c.size);
    if (!(bits & kNotOther)) return tail(skip_others(p + c.size));
    if (c.value == ' ' && p + 1 < end_ && !(classes_at(p + 1) & kNotOther)) return tail(skip_others(p + 1));
    return white_space(p);
  }

 private:
  static constexpr uint8_t kWord = kRules.marks_in_words ? kLetter | kMark : kLetter;
  static constexpr uint8_t kNotOther = kWord | kNumber | kSpace;

  uint8_t classes_at(const char* p) const { return classes_[decode_code_point(p, end_).value]; }

  const char* skip(const char* p, uint8_t mask) const {
    if (mask & kLetter) p = skip_ascii_letters(p);
    while (p < end_) {
      const CodePoint c = decode_code_point(p, end_);
      if (!(classes_[c.value] & mask)) break;
      p += c.size;
    }
    return p;
  }

  // Eight bytes at a time, so that short words have no loop whose end is guessed wrong.
  const char* skip_ascii_letters(const char* p) const {
    constexpr uint64_t kOnes = 0x0101010101010101;
    constexpr uint64_t kTops = kOnes * 0x80;
    while (end_ - p >= 8) {
      uint64_t bytes = 0;
      std::memcpy(&bytes, p, 8);
      const uint64_t lower = (bytes | kOnes * 0x20) & ~kTops;
      const uint64_t from_a = lower + kOnes * (0x80 - 'a');
      const uint64_t beyond_z = lower + kOnes * (0x7F - 'z');
      const uint64_t others = (~from_a | beyond_z | bytes) & kTops;
      if (others != 0) return p + std::countr_zero(others) / 8;
      p += 8;
    }
    return p;
  }

  const char* skip_others(const char* p) const {
    while (p < end_) {
      const CodePoint c = decode_code_point(p, end_);
      if (classes_[c.value] & kNotOther) break;
      p += c.size;
    }
    return p;
  }

  const char* digits(const char* p) const {
    if constexpr (kRules.digits == 0) return skip(p, kNumber);
    for (int n = 1; n < kRules.digits && p < end_; ++n) {
      const CodePoint c = decode_code_point(p, end_);
      if (!(classes_[c.value] & kNumber)) break;
      p += c.size;
    }
    return p;
  }

  // Newlines (and slashes) directly after punctuation.
  const char* tail(const char* p) const {
    while (p < end_ && (is_newline(static_cast<uint8_t>(*p)) || (kRules.slash_tail && *p == '/'))) ++p;
    return p;
  }

  // \s*[\r\n]+ | \s+(?!\S) | \s+
  const char* white_space(const char* p) const {
    const char* at = p;
    const char* last = p;
    const char* newline_end = nullptr;
    while (at < end_) {
      const CodePoint c = decode_code_point(at, end_);
      if (!(classes_[c.value] & kSpace)) break;
      last = at;
      at += c.size;
      if (!kRules.gpt2 && is_newline(c.value)) newline_end = at;
    }
    if (newline_end != nullptr) return newline_end;
    if (at == end_ || last == p) return at;
    return last;
  }

  const char* next_gpt2(const char* p, CodePoint c, uint8_t bits) const {
    if (c.value == '\'') {
      if (const size_t size = contraction(p)) return p + size;
    }
    const char* start = p + c.size;
    if (c.value == ' ' && start < end_) {
      const CodePoint second = decode_code_point(start, end_);
      if (!(classes_[second.value] & kSpace)) {
        bits = classes_[second.value];
        start += second.size;
      }
    }
    if (bits & kLetter) return skip(start, kLetter);
    if (bits & kNumber) return digits(start);
    if (!(bits & kSpace)) return skip_others(start);
    return white_space(p);
  }

  // The size of 's 't 'm 'd 're 've 'll at p, or 0. Outside GPT-2 case is ignored, and U+017F folds to s.
  size_t contraction(const char* p) const {
    const auto letter = [&](int i) -> char {
      if (p + i >= end_) return 0;
      const char c = p[i];
      return !kRules.gpt2 && c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
    };
    switch (letter(1)) {
      case 's':
      case 't':
      case 'm':
      case 'd':
        return 2;
      case 'r':
      case 'v':
        return letter(2) == 'e' ? 3 : 0;
      case 'l':
        return letter(2) == 'l' ? 3 : 0;
      case '\xC5':
        return !kRules.gpt2 && letter(2) == '\xBF' ? 3 : 0;
      default:
        return 0;
    }
  }

  // o200k's two word alternatives, each tried with its optional first character before without; null: no
  // word.
  const char* mixed_case_word(const char* p, CodePoint c, uint8_t bits) const {
    const bool may_be_prefix = !(bits & (kLetter | kNumber)) && !is_newline(c.value);
    const char* next = p + c.size;
    const char* word = nullptr;
    if (may_be_prefix) word = ends_in_lower(next);
    if (word == nullptr && (bits & (kUpper | kLower))) word = ends_in_lower(p);
    if (word == nullptr && may_be_prefix) word = upper_run(next);
    if (word == nullptr && (bits & kUpper)) word = upper_run(p);
    if (word == nullptr) return nullptr;
    if constexpr (kRules.contractions) {
      if (word < end_ && *word == '\'') word += contraction(word);
    }
    return word;
  }

  // [upper]*[lower]+: backtracks from the end of the first part over characters that are in both classes.
  const char* ends_in_lower(const char* p) const {
    const char* last_lower_end = nullptr;
    const char* at = p;
    while (at < end_) {
      const CodePoint c = decode_code_point(at, end_);
      const uint8_t bits = classes_[c.value];
      if (!(bits & kUpper)) {
        if (bits & kLower) return skip(at + c.size, kLower);
        break;
      }
      at += c.size;
      if (bits & kLower) last_lower_end = at;
    }
    return last_lower_end;
  }

  // [upper]+[lower]*, where ends_in_lower has found nothing.
  const char* upper_run(const char* p) const {
    const char* at = skip(p, kUpper);
    return at == p ? nullptr : skip(at, kLower);
  }

  const char* end_;
  const uint8_t* classes_;
};

template <Rules kRules>
size_t scan(std::string_view text, size_t from, size_t limit, std::vector<size_t>& ends) {
  const char* begin = text.data();
  const char* end = begin + text.size();
  const Scanner<kRules> scanner(end);
  const char* at = begin + from;
  for (size_t n = 0; n < limit && at < end; ++n) {
    at = scanner.next(at);
    ends.push_back(static_cast<size_t>(at - begin));
  }
  return static_cast<size_t>(at - begin);
}

struct Known {
  KnownPattern pattern;
  std::string_view regex;
};

#define STRATA_CL100K(digits)                                        \
  R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|)" digits \
  R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"
#define STRATA_O200K(contractions, digits)                                                                   \
  R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)" contractions             \
  R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)" contractions "|" digits \
  R"(| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"

// The first regular expression of a pattern is the one that we write.
constexpr Known kKnown[] = {
    {KnownPattern::kGpt2, R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"},
    {KnownPattern::kGpt2, R"('(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"},
    {KnownPattern::kCl100k, STRATA_CL100K(R"(\p{N}{1,3})")},
    {KnownPattern::kQwen2, STRATA_CL100K(R"(\p{N})")},
    {KnownPattern::kQwen35,
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|)"
     R"(\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {KnownPattern::kNanochat2,
     R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,2}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|)"
     R"(\s+(?!\S)|\s+)"},
    {KnownPattern::kCl100k,
     R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|)"
     R"(\s+(?!\S)|\s+)"},
    {KnownPattern::kO200k, STRATA_O200K("(?i:'s|'t|'re|'ve|'m|'ll|'d)?", R"(\p{N}{1,3})")},
    {KnownPattern::kTekken, STRATA_O200K("", R"(\p{N})")},
};

}  // namespace

std::optional<KnownPattern> recognise_pattern(std::string_view regex) {
  for (const Known& known : kKnown) {
    if (known.regex == regex) return known.pattern;
  }
  return std::nullopt;
}

std::string_view pattern_regex(KnownPattern pattern) {
  for (const Known& known : kKnown) {
    if (known.pattern == pattern) return known.regex;
  }
  throw InternalError("[tokenizer] no regular expression for pattern {}", static_cast<int>(pattern));
}

std::optional<SplitPreset> split_preset(std::string_view name) {
  struct Named {
    std::string_view name;
    SplitPreset preset;
  };
  static constexpr Named kPresets[] = {
      {"gpt2", {KnownPattern::kGpt2, false}},         {"r50k", {KnownPattern::kGpt2, false}},
      {"p50k", {KnownPattern::kGpt2, false}},         {"cl100k", {KnownPattern::kCl100k, false}},
      {"llama3", {KnownPattern::kCl100k, false}},     {"o200k", {KnownPattern::kO200k, false}},
      {"llama4", {KnownPattern::kO200k, false}},      {"qwen", {KnownPattern::kQwen2, true}},
      {"qwen3.5", {KnownPattern::kQwen35, true}},     {"tekken", {KnownPattern::kTekken, false}},
      {"nanochat", {KnownPattern::kNanochat2, false}}};
  for (const Named& named : kPresets) {
    if (named.name == name) return named.preset;
  }
  return std::nullopt;
}

size_t scan_pieces(KnownPattern pattern, std::string_view text, size_t from, size_t limit,
                   std::vector<size_t>& ends) {
  switch (pattern) {
    case KnownPattern::kGpt2:
      return scan<kGpt2Rules>(text, from, limit, ends);
    case KnownPattern::kCl100k:
      return scan<kCl100kRules>(text, from, limit, ends);
    case KnownPattern::kQwen2:
      return scan<kQwen2Rules>(text, from, limit, ends);
    case KnownPattern::kQwen35:
      return scan<kQwen35Rules>(text, from, limit, ends);
    case KnownPattern::kNanochat2:
      return scan<kNanochat2Rules>(text, from, limit, ends);
    case KnownPattern::kO200k:
      return scan<kO200kRules>(text, from, limit, ends);
    case KnownPattern::kTekken:
      return scan<kTekkenRules>(text, from, limit, ends);
  }
  throw InternalError("[tokenizer] unknown pattern {}", static_cast<int>(pattern));
}

}  // namespace strata::data
