// Runs of bytes that are in a set or not, found with the processor's vectors.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace strata::data {

// A set of ASCII characters: bit h of low[l] stands for character 16 * h + l.
struct AsciiSet {
  std::array<uint8_t, 16> low{};
  void add(uint8_t character) {
    low[character & 15] = static_cast<uint8_t>(low[character & 15] | 1 << (character >> 4));
  }
};

// The places where runs of bytes outside of the set begin and end, in turns. The text is smaller than 4 GiB.
void find_runs(std::string_view text, const AsciiSet& between, std::vector<uint32_t>& edges);

// Bit i % 64 of number i / 64: byte i is in the set, or, if `wide`, it is not ASCII. True if there is any.
// One number more than the text needs is written, so that 64 bits can be taken from any place.
bool mark_bytes(std::string_view text, const AsciiSet& set, bool wide, std::vector<uint64_t>& bits);

// Whether any of the bits [begin, end) is set.
inline bool any_marked(const uint64_t* bits, size_t begin, size_t end) {
  for (size_t at = begin; at < end; at += 64) {
    const size_t shift = at % 64;
    uint64_t window = bits[at / 64] >> shift;
    if (shift != 0) window |= bits[at / 64 + 1] << (64 - shift);
    if (end - at < 64) window &= (uint64_t{1} << (end - at)) - 1;
    if (window != 0) return true;
  }
  return false;
}

}  // namespace strata::data
