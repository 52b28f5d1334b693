#include "cli/escapes.h"

#include <charconv>
#include <cstdint>

#include "base/error.h"
#include "data/tokenizer/unicode.h"

namespace strata::cli {
namespace {

constexpr std::string_view kLetters = "nrt0\\\"'";
constexpr std::string_view kMeanings{"\n\r\t\0\\\"'", 7};

class Reader {
 public:
  Reader(std::string_view text, std::string_view option) : text_(text), option_(option) {}

  std::string read() {
    while (at_ < text_.size()) {
      const char c = text_[at_++];
      if (c != '\\') {
        out_ += c;
        continue;
      }
      if (at_ == text_.size()) refuse();
      escape(text_[at_++]);
    }
    return std::move(out_);
  }

 private:
  void escape(char letter) {
    if (const size_t which = kLetters.find(letter); which != kLetters.npos) {
      out_ += kMeanings[which];
    } else if (letter == 'x') {
      out_ += static_cast<char>(digits(2));
    } else if (letter == 'u') {
      data::append_utf8(out_, code_point());
    } else {
      refuse();
    }
  }

  uint32_t code_point() {
    const uint32_t first = digits(4);
    if (first < 0xD800 || first > 0xDFFF) return first;
    if (first > 0xDBFF || !text_.substr(at_).starts_with("\\u")) refuse();
    at_ += 2;
    const uint32_t second = digits(4);
    if (second < 0xDC00 || second > 0xDFFF) refuse();
    return 0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00);
  }

  uint32_t digits(size_t count) {
    const std::string_view hex = text_.substr(at_, count);
    uint32_t value = 0;
    const auto read = std::from_chars(hex.data(), hex.data() + hex.size(), value, 16);
    if (hex.size() != count || read.ec != std::errc() || read.ptr != hex.data() + count) refuse();
    at_ += count;
    return value;
  }

  [[noreturn]] void refuse() const {
    throw ConfigError(
        "[{}] found \"{}\", whose backslash at position {} begins no known escape; expected \\n, \\r, \\t, "
        "\\xHH, \\uXXXX, or \\\\ for a backslash",
        option_, text_, text_.rfind('\\', at_ - 1) + 1);
  }

  std::string_view text_, option_;
  size_t at_ = 0;
  std::string out_;
};

}  // namespace

std::string unescaped(std::string_view text, std::string_view option) {
  return Reader(text, option).read();
}

}  // namespace strata::cli
