#include "data/text/lines.h"

#include <cstdint>
#include <cstring>

namespace strata::data {
namespace {

constexpr size_t kBlock = 4096;

// Whether a line may end at something else than a newline. Written so that compilers use vectors.
#if defined(__GNUC__) && !defined(__clang__)
__attribute__((optimize("O3")))
#endif
bool has_other_ends(const uint8_t* bytes, size_t size) {
  if (size < 3) {
    for (size_t i = 0; i < size; ++i) {
      if ((bytes[i] >= 0x0B && bytes[i] <= 0x1E) || bytes[i] == 0xC2) return true;
    }
    return false;
  }
  for (size_t block = 0; block < size - 2; block += kBlock) {
    const uint8_t* at = bytes + block;
    const size_t n = size - 2 - block < kBlock ? size - 2 - block : kBlock;
    uint8_t found = 0;
    for (size_t i = 0; i < n; ++i) {
      const uint8_t a = at[i], b = at[i + 1], c = at[i + 2];
      found |=
          static_cast<uint8_t>((static_cast<uint8_t>(a - 0x0B) <= 0x1E - 0x0B) | ((a == 0xC2) & (b == 0x85)) |
                               ((a == 0xE2) & (b == 0x80) & ((c | 1) == 0xA9)));
    }
    if (found) return true;
  }
  for (size_t i = size - 2; i < size; ++i) {
    if (bytes[i] >= 0x0B && bytes[i] <= 0x1E) return true;
  }
  return bytes[size - 2] == 0xC2 && bytes[size - 1] == 0x85;
}

// Bytes of the line end at `at`, 0 if there is none.
size_t line_end(const char* at, const char* end) {
  const auto byte = [at](int i) { return static_cast<uint8_t>(at[i]); };
  switch (byte(0)) {
    case '\r':
      return end - at > 1 && byte(1) == '\n' ? 2 : 1;
    case '\n':
    case 0x0B:
    case 0x0C:
    case 0x1C:
    case 0x1D:
    case 0x1E:
      return 1;
    case 0xC2:
      return end - at > 1 && byte(1) == 0x85 ? 2 : 0;
    case 0xE2:
      return end - at > 2 && byte(1) == 0x80 && (byte(2) | 1) == 0xA9 ? 3 : 0;
    default:
      return 0;
  }
}

}  // namespace

void split_newlines(std::string_view text, std::vector<std::string_view>& lines) {
  const char* at = text.data();
  const char* end = at + text.size();
  while (true) {
    const void* found = at < end ? std::memchr(at, '\n', static_cast<size_t>(end - at)) : nullptr;
    const char* stop = found ? static_cast<const char*>(found) : end;
    lines.emplace_back(at, static_cast<size_t>(stop - at));
    if (!found) return;
    at = stop + 1;
  }
}

void split_lines(std::string_view text, std::vector<std::string_view>& lines) {
  if (text.empty()) return;
  if (!has_other_ends(reinterpret_cast<const uint8_t*>(text.data()), text.size())) {
    split_newlines(text, lines);
    if (lines.back().empty()) lines.pop_back();
    return;
  }
  const char* at = text.data();
  const char* end = at + text.size();
  const char* begin = at;
  while (at < end) {
    const uint8_t byte = static_cast<uint8_t>(*at);
    const size_t size = byte < 0x20 || byte >= 0xC2 ? line_end(at, end) : 0;
    if (size == 0) {
      ++at;
      continue;
    }
    lines.emplace_back(begin, static_cast<size_t>(at - begin));
    at += size;
    begin = at;
  }
  if (begin < end) lines.emplace_back(begin, static_cast<size_t>(end - begin));
}

}  // namespace strata::data
