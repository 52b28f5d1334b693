#include "base/text.h"

#include <bit>
#include <cstdint>
#include <cstring>

namespace strata {
namespace {

constexpr uint64_t kOnes = 0x0101010101010101;
constexpr uint64_t kHighs = 0x8080808080808080;

// A high bit set in the first byte (from the lowest on) of `word` that is below 0x20, a quote or a backslash;
// later bytes may be marked falsely.
uint64_t marks(uint64_t word) {
  const auto zero = [](uint64_t w) { return (w - kOnes) & ~w & kHighs; };
  const uint64_t control = (word - kOnes * 0x20) & ~word & kHighs;
  return control | zero(word ^ (kOnes * '"')) | zero(word ^ (kOnes * '\\'));
}

void append_escaped(std::string& out, char c) {
  switch (c) {
    case '"':
      out += "\\\"";
      return;
    case '\\':
      out += "\\\\";
      return;
    case '\n':
      out += "\\n";
      return;
    case '\r':
      out += "\\r";
      return;
    case '\t':
      out += "\\t";
      return;
    case '\b':
      out += "\\b";
      return;
    case '\f':
      out += "\\f";
      return;
    default: {
      static constexpr char kDigits[] = "0123456789abcdef";
      const auto byte = static_cast<unsigned char>(c);
      out += "\\u00";
      out += kDigits[byte >> 4];
      out += kDigits[byte & 15];
    }
  }
}

bool is_plain(char c) {
  return static_cast<unsigned char>(c) >= 0x20 && c != '"' && c != '\\';
}

}  // namespace

std::string_view utf8_prefix(std::string_view text, size_t bytes) {
  if (text.size() <= bytes) return text;
  // A character has up to three bytes after its first.
  for (size_t back = 0; back < 4 && back <= bytes; ++back) {
    if ((static_cast<unsigned char>(text[bytes - back]) & 0xc0) != 0x80) return text.substr(0, bytes - back);
  }
  return text.substr(0, bytes);
}

void append_json_string(std::string& out, std::string_view text) {
  out += '"';
  size_t begin = 0, at = 0;
  while (at < text.size()) {
    while (at + 8 <= text.size()) {
      uint64_t word;
      std::memcpy(&word, text.data() + at, 8);
      const uint64_t found = marks(word);
      if (found == 0) {
        at += 8;
        continue;
      }
      at += static_cast<size_t>(std::countr_zero(found)) / 8;
      break;
    }
    while (at < text.size() && is_plain(text[at])) ++at;
    out.append(text, begin, at - begin);
    if (at < text.size()) append_escaped(out, text[at++]);
    begin = at;
  }
  out += '"';
}

}  // namespace strata
