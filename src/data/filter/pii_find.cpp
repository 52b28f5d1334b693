#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include "base/error.h"
#include "data/filter/pii.h"
#include "data/text/characters.h"

namespace strata::data {
namespace {

constexpr std::string_view kEmail =
    R"(\b[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(?:\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*@)"
    R"((?:(?:[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?\.)+[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?)"
    R"(|\[(?:(?:25[0-5]|2[0-4][0-9]|[01]?[0-9][0-9]?)\.){3})"
    R"((?:25[0-5]|2[0-4][0-9]|[01]?[0-9][0-9]?|[A-Za-z0-9-]*[A-Za-z0-9]:)\]))";

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_alnum(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
bool is_local(char c) {
  return is_alnum(c) || c == '.' || std::string_view("!#$%&'*+/=?^_`{|}~-").find(c) != std::string_view::npos;
}
bool is_domain(char c) {
  return is_alnum(c) || c == '.' || c == '-' || c == '[' || c == ']' || c == ':';
}

// Digits at `at`, at most `most`.
size_t digits_at(std::string_view text, size_t at, size_t most) {
  size_t n = 0;
  while (n < most && at + n < text.size() && is_digit(text[at + n])) ++n;
  return n;
}

bool is_octet(std::string_view digits) {
  if (digits.size() < 3) return !digits.empty();
  return digits.size() == 3 && (digits[0] <= '1' || (digits[0] == '2' && digits <= "255"));
}

// Bytes of an address whose first octet is text[at, dot), 0 for none.
size_t ipv4_size(std::string_view text, size_t at, size_t dot) {
  if (!is_octet(text.substr(at, dot - at))) return 0;
  size_t next = dot + 1;
  for (int octet = 1; octet < 3; ++octet) {
    const size_t n = digits_at(text, next, 4);
    if (!is_octet(text.substr(next, n)) || next + n >= text.size() || text[next + n] != '.') return 0;
    next += n + 1;
  }
  size_t n = digits_at(text, next, 3);
  while (n > 0 && !is_octet(text.substr(next, n))) --n;
  return n == 0 ? 0 : next + n - at;
}

}  // namespace

struct EmailPattern::Compiled {
  pcre2_code* code = nullptr;
  ~Compiled() { pcre2_code_free(code); }
};

EmailPattern::EmailPattern() {
  auto compiled = std::make_unique<Compiled>();
  int error = 0;
  PCRE2_SIZE offset = 0;
  compiled->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(kEmail.data()), kEmail.size(),
                                 PCRE2_UTF | PCRE2_UCP, &error, &offset, nullptr);
  STRATA_CHECK(compiled->code != nullptr, "PCRE2 error {} at {} of the e-mail pattern", error, offset);
  pcre2_jit_compile(compiled->code, PCRE2_JIT_COMPLETE);
  compiled_ = std::move(compiled);
}
EmailPattern::~EmailPattern() = default;

void EmailPattern::find(std::string_view text, std::vector<Found>& out) const {
  out.clear();
  pcre2_match_data* match = nullptr;
  size_t done = 0;
  for (size_t at = text.find('@'); at != std::string_view::npos; at = text.find('@', at + 1)) {
    // A match around this @ extends over the characters that its two sides may have; the character before
    // them decides on the word boundary.
    size_t begin = at;
    while (begin > done && is_local(text[begin - 1])) --begin;
    if (begin == at) continue;
    size_t end = at + 1;
    while (end < text.size() && is_domain(text[end])) ++end;
    if (end == at + 1) continue;
    size_t window = begin;
    if (window > 0) window -= decode_utf8_before(text.data(), text.data() + window).size;
    if (match == nullptr) match = pcre2_match_data_create_from_pattern(compiled_->code, nullptr);
    const int found = pcre2_match(compiled_->code, reinterpret_cast<PCRE2_SPTR>(text.data() + window),
                                  end - window, begin - window, 0, match, nullptr);
    if (found < 0) continue;
    const PCRE2_SIZE* offsets = pcre2_get_ovector_pointer(match);
    out.push_back({window + offsets[0], window + offsets[1]});
    done = out.back().end;
    at = std::max(at, done - 1);
  }
  if (match != nullptr) pcre2_match_data_free(match);
}

void find_ipv4(std::string_view text, std::vector<Found>& out) {
  out.clear();
  size_t done = 0;
  for (size_t dot = text.find('.'); dot != std::string_view::npos; dot = text.find('.', dot + 1)) {
    size_t before = 0;
    while (before < 3 && dot - before > done && is_digit(text[dot - before - 1])) ++before;
    if (before == 0 || dot + 1 >= text.size() || !is_digit(text[dot + 1])) continue;
    for (; before > 0; --before) {
      const size_t size = ipv4_size(text, dot - before, dot);
      if (size == 0) continue;
      out.push_back({dot - before, dot - before + size});
      done = out.back().end;
      dot = done - 1;
      break;
    }
  }
}

bool is_masked_ipv4(std::string_view address, bool public_only) {
  uint32_t value = 0;
  size_t at = 0;
  for (int octet = 0; octet < 4; ++octet) {
    const size_t n = digits_at(address, at, 3);
    if (n == 0 || (n > 1 && address[at] == '0')) return false;
    uint32_t number = 0;
    for (size_t i = 0; i < n; ++i) number = number * 10 + static_cast<uint32_t>(address[at + i] - '0');
    value = value << 8 | number;
    at += n + 1;
  }
  if (!public_only) return true;
  struct Network {
    uint32_t address;
    int bits;
  };
  // What Python 3.11 calls private, and the shared address space.
  constexpr std::array<Network, 15> kNetworks = {{{0x00000000, 8},
                                                  {0x0A000000, 8},
                                                  {0x64400000, 10},
                                                  {0x7F000000, 8},
                                                  {0xA9FE0000, 16},
                                                  {0xAC100000, 12},
                                                  {0xC0000000, 29},
                                                  {0xC00000AA, 31},
                                                  {0xC0000200, 24},
                                                  {0xC0A80000, 16},
                                                  {0xC6120000, 15},
                                                  {0xC6336400, 24},
                                                  {0xCB007100, 24},
                                                  {0xF0000000, 4},
                                                  {0xFFFFFFFF, 32}}};
  return std::none_of(kNetworks.begin(), kNetworks.end(), [value](const Network& network) {
    const uint32_t mask = ~uint32_t{0} << (32 - network.bits);
    return (value & mask) == network.address;
  });
}

namespace {

// \(?(\d{3})\)?[-\. ]*(\d{3})[-. ]?(\d{4}) at `at`: its end, or 0.
size_t phone_end(std::string_view text, size_t at) {
  const auto is_separator = [&](size_t i) {
    return i < text.size() && (text[i] == '-' || text[i] == '.' || text[i] == ' ');
  };
  if (at < text.size() && text[at] == '(') ++at;
  if (digits_at(text, at, 3) < 3) return 0;
  at += 3;
  if (at < text.size() && text[at] == ')') ++at;
  while (is_separator(at)) ++at;
  if (digits_at(text, at, 3) < 3) return 0;
  at += 3;
  if (is_separator(at)) ++at;
  return digits_at(text, at, 4) < 4 ? 0 : at + 4;
}

bool is_reference(std::string_view text, Found found) {
  constexpr size_t kContext = 100;
  const size_t begin = found.begin > kContext ? found.begin - kContext : 0;
  const std::string_view around = text.substr(begin, found.end + kContext - begin);
  for (size_t i = 0; i < around.size(); ++i) {
    const auto is = [&](std::string_view word) {
      if (around.size() - i < word.size()) return false;
      return std::equal(word.begin(), word.end(), around.begin() + static_cast<ptrdiff_t>(i),
                        [](char a, char b) { return a == (is_alnum(b) ? b | 0x20 : b); });
    };
    if (around[i] == '#' || is("isbn") || is("doi")) return true;
  }
  return false;
}

}  // namespace

void find_phones(std::string_view text, std::vector<Found>& out) {
  out.clear();
  const uint8_t* table = character_table();
  for (size_t at = 1; at < text.size(); ++at) {
    if (!is_digit(text[at]) && text[at] != '(') continue;
    const bool starts = (table[decode_utf8_before(text.data(), text.data() + at).value] & kSpaceBit) != 0;
    const size_t end = starts ? phone_end(text, at) : 0;
    if (end == 0) {
      while (at + 1 < text.size() && is_digit(text[at + 1])) ++at;
      continue;
    }
    const Found found{at, end};
    if (!is_reference(text, found)) out.push_back(found);
    at = end - 1;
  }
}

}  // namespace strata::data
