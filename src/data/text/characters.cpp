#include "data/text/characters.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <memory>
#include <span>

namespace strata::data {
namespace {

struct LowerRange {
  uint32_t first, last, step;
  int32_t delta;
};
struct BaseForm {
  uint32_t from;
  uint32_t to[3];
};

#include "data/text/character_tables.inc"

static_assert(std::size(kClassStart) == std::size(kClassBits));
static_assert(std::size(kSigmaStart) == std::size(kSigmaBits));

constexpr uint32_t kCodePoints = 0x110000;
constexpr uint32_t kCapitalSigma = 0x3A3;

std::unique_ptr<uint8_t[]> make_character_table() {
  auto table = std::make_unique<uint8_t[]>(kCodePoints);
  for (size_t i = 0; i < std::size(kClassStart); ++i) {
    const uint32_t end = i + 1 < std::size(kClassStart) ? kClassStart[i + 1] : kCodePoints;
    if (kClassBits[i] != 0) std::fill(table.get() + kClassStart[i], table.get() + end, kClassBits[i]);
  }
  return table;
}

uint32_t lower_code_point(uint32_t c) {
  const LowerRange* range = std::upper_bound(std::begin(kLower), std::end(kLower), c,
                                             [](uint32_t x, const LowerRange& r) { return x < r.first; });
  if (range == std::begin(kLower)) return c;
  --range;
  if (c > range->last || (c - range->first) % range->step != 0) return c;
  return static_cast<uint32_t>(static_cast<int64_t>(c) + range->delta);
}

uint8_t sigma_bits(uint32_t c) {
  const uint32_t* next = std::upper_bound(std::begin(kSigmaStart), std::end(kSigmaStart), c);
  return next == std::begin(kSigmaStart) ? 0 : kSigmaBits[next - std::begin(kSigmaStart) - 1];
}

constexpr uint8_t kCased = 1;
constexpr uint8_t kCaseIgnored = 2;

// A capital sigma is final if a cased letter precedes it and none follows; ignored characters may be in
// between.
bool is_final_sigma(std::string_view text, const char* at) {
  const char* begin = text.data();
  const char* end = begin + text.size();
  const char* before = at;
  uint8_t bits = 0;
  while (before > begin) {
    const Character c = decode_utf8_before(begin, before);
    before -= c.size;
    bits = sigma_bits(c.value);
    if (!(bits & kCaseIgnored)) break;
  }
  if (!(bits & kCased)) return false;
  for (const char* after = at + 2; after < end;) {
    const Character c = decode_utf8(after, end);
    after += c.size;
    bits = sigma_bits(c.value);
    if (!(bits & kCaseIgnored)) return !(bits & kCased);
  }
  return true;
}

void append_lower(std::string& out, std::string_view text, const char* at, Character c) {
  if (c.value == 0x130) {
    out += "i\xCC\x87";
  } else if (c.value == kCapitalSigma) {
    out += is_final_sigma(text, at) ? "\xCF\x82" : "\xCF\x83";
  } else {
    append_code_point(out, lower_code_point(c.value));
  }
}

// Decomposition without nonspacing marks.
void append_base(std::string& out, uint32_t c, const uint8_t* table) {
  if (c < 0xC0) return append_code_point(out, c);
  if (c >= 0xAC00 && c < 0xAC00 + 11172) {
    const uint32_t index = c - 0xAC00;
    append_code_point(out, 0x1100 + index / 588);
    append_code_point(out, 0x1161 + index % 588 / 28);
    if (index % 28 != 0) append_code_point(out, 0x11A7 + index % 28);
    return;
  }
  if (table[c] & kNonspacingBit) return;
  const BaseForm* form = std::lower_bound(std::begin(kBase), std::end(kBase), c,
                                          [](const BaseForm& f, uint32_t x) { return f.from < x; });
  if (form == std::end(kBase) || form->from != c) return append_code_point(out, c);
  for (const uint32_t part : form->to) {
    if (part != 0) append_code_point(out, part);
  }
}

// [.,،٫⎖⎗⎘]
bool is_decimal_separator(uint32_t c) {
  return c == '.' || c == ',' || c == 0x60C || c == 0x66B || (c >= 0x2396 && c <= 0x2398);
}

// After a first digit: the rest of a number, with one separator if digits follow it.
const char* skip_number(const char* at, const char* end, const uint8_t* table) {
  const auto skip_digits = [&](const char* from) {
    while (from < end) {
      const Character c = decode_utf8(from, end);
      if (!(table[c.value] & kDecimalBit)) break;
      from += c.size;
    }
    return from;
  };
  at = skip_digits(at);
  if (at == end) return at;
  const Character c = decode_utf8(at, end);
  if (!is_decimal_separator(c.value)) return at;
  const char* after = skip_digits(at + c.size);
  return after == at + c.size ? at : after;
}

struct AsciiLower {
  char map[128];
  constexpr AsciiLower() : map() {
    for (int c = 0; c < 128; ++c) map[c] = static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
  }
};
constexpr AsciiLower kAsciiLower;

}  // namespace

const uint8_t* character_table() {
  static const std::unique_ptr<uint8_t[]> table = make_character_table();
  return table.get();
}

void append_code_point(std::string& out, uint32_t c) {
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    const char bytes[] = {static_cast<char>(0xC0 | c >> 6), static_cast<char>(0x80 | (c & 0x3F))};
    out.append(bytes, 2);
  } else if (c < 0x10000) {
    const char bytes[] = {static_cast<char>(0xE0 | c >> 12), static_cast<char>(0x80 | (c >> 6 & 0x3F)),
                          static_cast<char>(0x80 | (c & 0x3F))};
    out.append(bytes, 3);
  } else {
    const char bytes[] = {static_cast<char>(0xF0 | c >> 18), static_cast<char>(0x80 | (c >> 12 & 0x3F)),
                          static_cast<char>(0x80 | (c >> 6 & 0x3F)), static_cast<char>(0x80 | (c & 0x3F))};
    out.append(bytes, 4);
  }
}

int64_t count_code_points(std::string_view text) {
  int64_t continuation = 0;
  size_t i = 0;
  while (i + 8 <= text.size()) {
    // Eight counters of a byte each; 255 rounds do not overflow them.
    uint64_t sums = 0;
    const size_t stop = std::min(text.size() - 7, i + 8 * 255);
    for (; i < stop; i += 8) {
      uint64_t x;
      std::memcpy(&x, text.data() + i, 8);
      sums += (x & ~(x << 1)) >> 7 & 0x0101010101010101u;
    }
    // Sums of two bytes first, so that the multiplication does not overflow.
    const uint64_t pairs = (sums & 0x00FF00FF00FF00FFu) + (sums >> 8 & 0x00FF00FF00FF00FFu);
    continuation += static_cast<int64_t>(pairs * 0x0001000100010001u >> 48);
  }
  for (; i < text.size(); ++i) continuation += (static_cast<uint8_t>(text[i]) & 0xC0) == 0x80;
  return static_cast<int64_t>(text.size()) - continuation;
}

std::string_view strip_left(std::string_view text) {
  const uint8_t* table = character_table();
  const char* at = text.data();
  const char* end = at + text.size();
  while (at < end) {
    const Character c = decode_utf8(at, end);
    if (!(table[c.value] & kSpaceBit)) break;
    at += c.size;
  }
  return {at, static_cast<size_t>(end - at)};
}

std::string_view strip_right(std::string_view text) {
  const uint8_t* table = character_table();
  const char* begin = text.data();
  const char* at = begin + text.size();
  while (at > begin) {
    const Character c = decode_utf8_before(begin, at);
    if (!(table[c.value] & kSpaceBit)) break;
    at -= c.size;
  }
  return {begin, static_cast<size_t>(at - begin)};
}

void lower(std::string_view text, std::string& out) {
  out.clear();
  out.reserve(text.size() + 8);
  const char* at = text.data();
  const char* end = at + text.size();
  while (at < end) {
    if (static_cast<uint8_t>(*at) < 0x80) {
      out += kAsciiLower.map[static_cast<uint8_t>(*at++)];
      continue;
    }
    const Character c = decode_utf8(at, end);
    append_lower(out, text, at, c);
    at += c.size;
  }
}

namespace {

// What simplify does, character by character.
class Simplification {
 public:
  Simplification(std::string_view text, std::string& out)
      : out_(out), table_(character_table()), text_(text), end_(text.data() + text.size()) {
    out_.resize(text.size() + kSlack);
  }

  // White space or punctuation, before the next character.
  void separate() { space_ = true; }

  // A run of the text, of ASCII characters that need nothing but lower case.
  void add_run(std::string_view run) {
    begin_character();
    char* const to = out_.data() + size_;
    size_ += run.size();
    if (end_ - (run.data() + run.size()) < 8) {
      for (size_t i = 0; i < run.size(); ++i) to[i] = kAsciiLower.map[static_cast<uint8_t>(run[i])];
      return;
    }
    // Eight bytes at a time, of which the next ones overwrite the excess.
    for (size_t i = 0; i < run.size(); i += 8) {
      uint64_t x;
      std::memcpy(&x, run.data() + i, 8);
      x = lower_ascii(x);
      std::memcpy(to + i, &x, 8);
    }
  }

  // Adds the character at `at`, or a whole number; returns the place after it.
  const char* add(const char* at) {
    const Character c = decode_utf8(at, end_);
    const uint8_t bits = table_[c.value];
    if (bits & kDecimalBit) {
      begin_character();
      out_[size_++] = '0';
      return skip_number(at + c.size, end_, table_);
    }
    const char* const next = at + c.size;
    if (bits & (kSpaceBit | kPunctuationBit)) {
      separate();
    } else if (c.value < 0x80) {
      begin_character();
      out_[size_++] = kAsciiLower.map[c.value];
    } else {
      lowered_.clear();
      append_lower(lowered_, text_, at, c);
      base_.clear();
      for (const char* low = lowered_.data(); low < lowered_.data() + lowered_.size();) {
        const Character part = decode_utf8(low, lowered_.data() + lowered_.size());
        append_base(base_, part.value, table_);
        low += part.size;
      }
      begin_character();
      // Reserve capacity for the rest of the text: only here can the result be longer than the text.
      const size_t needed = size_ + base_.size() + static_cast<size_t>(end_ - next) + kSlack;
      if (out_.size() < needed) out_.resize(2 * needed);
      std::memcpy(out_.data() + size_, base_.data(), base_.size());
      size_ += base_.size();
    }
    return next;
  }

  void finish() {
    out_.resize(size_);
    // A removed mark may have been isolated between two spaces at an end.
    const std::string_view stripped = strip(out_);
    if (stripped.size() == out_.size()) return;
    const size_t begin = static_cast<size_t>(stripped.data() - out_.data());
    out_.resize(begin + stripped.size());
    out_.erase(0, begin);
  }

 private:
  static constexpr size_t kSlack = 16;

  void begin_character() {
    if (space_ && size_ > 0) out_[size_++] = ' ';
    space_ = false;
  }
  // For eight ASCII characters: bit 5 is set for each from 'A' to 'Z'.
  static uint64_t lower_ascii(uint64_t x) {
    constexpr uint64_t kOnes = 0x0101010101010101u;
    x &= ~(kOnes * 0x80);  // bytes after a run need not be ASCII
    const uint64_t from_a = x + kOnes * (0x80 - 'A'), after_z = x + kOnes * (0x80 - 'Z' - 1);
    return x | ((from_a & ~after_z & kOnes * 0x80) >> 2);
  }

  std::string& out_;  // size_ of it is written
  size_t size_ = 0;
  const uint8_t* table_;
  std::string_view text_;
  const char* end_;
  bool space_ = false;  // white space or punctuation since the last character
  std::string lowered_, base_;
};

}  // namespace

void simplify(std::string_view text, std::string& out) {
  Simplification simplification(text, out);
  for (const char* at = text.data(); at < text.data() + text.size();) at = simplification.add(at);
  simplification.finish();
}

Simplifier::Simplifier() {
  const uint8_t* table = character_table();
  for (uint8_t c = 0; c < 0x80; ++c) {
    if (table[c] & (kSpaceBit | kPunctuationBit)) separators_.add(c);
    if (table[c] & kDecimalBit) digits_.add(c);
  }
}

void Simplifier::simplify(std::string_view text, std::string& out) {
  find_runs(text, separators_, edges_);
  mark_bytes(text, digits_, true, slow_);
  Simplification simplification(text, out);
  const char* done = text.data();
  for (size_t i = 0; i < edges_.size(); i += 2) {
    const char* const begin = text.data() + edges_[i];
    const char* const end = text.data() + edges_[i + 1];
    // A number may reach into the next run.
    const char* at = std::max(done, begin);
    if (done <= begin) {
      if (begin > text.data()) simplification.separate();
      if (!any_marked(slow_.data(), edges_[i], edges_[i + 1])) {
        simplification.add_run({begin, static_cast<size_t>(end - begin)});
        done = end;
        continue;
      }
    }
    while (at < end) at = simplification.add(at);
    done = std::max(done, at);
  }
  simplification.finish();
}

}  // namespace strata::data
