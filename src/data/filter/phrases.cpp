#include "data/filter/phrases.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace strata::data {
namespace {

// Whether any of the substrings occurs that each phrase holds ("jav", "ips", "coo", "f us", "y po"), in any
// case. Written so that compilers vectorize it. Reads 3 bytes beyond `n`.
#if defined(__GNUC__) && !defined(__clang__)
__attribute__((optimize("O3")))
#endif
bool block_may_have(const uint8_t* at, size_t n) {
  uint8_t found = 0;
  for (size_t i = 0; i < n; ++i) {
    const uint8_t a = at[i] | 0x20, b = at[i + 1] | 0x20, c = at[i + 2] | 0x20, d = at[i + 3] | 0x20;
    found |= static_cast<uint8_t>(
        ((a == 'j') & (b == 'a') & (c == 'v')) | ((a == 'i') & (b == 'p') & (c == 's')) |
        ((a == 'c') & (b == 'o') & (c == 'o')) | ((a == 'f') & (b == ' ') & (c == 'u') & (d == 's')) |
        ((a == 'y') & (b == ' ') & (c == 'p') & (d == 'o')));
  }
  return found != 0;
}

}  // namespace

LinePhrases find_phrases(std::string_view lowered) {
  const auto has = [lowered](std::string_view phrase) {
    return lowered.find(phrase) != std::string_view::npos;
  };
  return {.lorem_ipsum = has("lorem ipsum"),
          .javascript = has("javascript"),
          .policy = has("terms of use") || has("privacy policy") || has("cookie policy") ||
                    has("uses cookies") || has("use of cookies") || has("use cookies")};
}

bool may_have_phrases(std::string_view text) {
  constexpr size_t kBlock = 4096;
  const auto* bytes = reinterpret_cast<const uint8_t*>(text.data());
  // No phrase is shorter than four bytes.
  if (text.size() < 4) return false;
  const size_t places = text.size() - 3;
  for (size_t at = 0; at < places; at += kBlock) {
    if (block_may_have(bytes + at, std::min(kBlock, places - at))) return true;
  }
  return false;
}

}  // namespace strata::data
