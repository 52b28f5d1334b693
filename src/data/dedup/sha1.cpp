#include "data/dedup/sha1.h"

#include <bit>
#include <cstring>

namespace strata::data::dedup {
namespace {

using State = std::array<uint32_t, 5>;

void add_block(State& state, const uint8_t* block) {
  uint32_t w[80];
  for (int t = 0; t < 16; ++t) {
    w[t] = uint32_t{block[4 * t]} << 24 | uint32_t{block[4 * t + 1]} << 16 | uint32_t{block[4 * t + 2]} << 8 |
           block[4 * t + 3];
  }
  for (int t = 16; t < 80; ++t) w[t] = std::rotl(w[t - 3] ^ w[t - 8] ^ w[t - 14] ^ w[t - 16], 1);
  uint32_t a = state[0], b = state[1], c = state[2], d = state[3], e = state[4];
  const auto round = [&](uint32_t f, uint32_t k, uint32_t word) {
    const uint32_t next = std::rotl(a, 5) + f + e + k + word;
    e = d;
    d = c;
    c = std::rotl(b, 30);
    b = a;
    a = next;
  };
  for (int t = 0; t < 20; ++t) round((b & c) | (~b & d), 0x5A827999u, w[t]);
  for (int t = 20; t < 40; ++t) round(b ^ c ^ d, 0x6ED9EBA1u, w[t]);
  for (int t = 40; t < 60; ++t) round((b & c) | (b & d) | (c & d), 0x8F1BBCDCu, w[t]);
  for (int t = 60; t < 80; ++t) round(b ^ c ^ d, 0xCA62C1D6u, w[t]);
  const State mixed = {a, b, c, d, e};
  for (size_t i = 0; i < 5; ++i) state[i] += mixed[i];
}

}  // namespace

std::array<uint8_t, 20> sha1(std::string_view bytes) {
  State state = {0x67452301u, 0xEFCDAB89u, 0x98BADCFEu, 0x10325476u, 0xC3D2E1F0u};
  const auto* at = reinterpret_cast<const uint8_t*>(bytes.data());
  size_t rest = bytes.size();
  for (; rest >= 64; rest -= 64, at += 64) add_block(state, at);
  // The last blocks: the remaining bytes, a one bit, zeros, the length in bits.
  uint8_t last[128] = {};
  if (rest > 0) std::memcpy(last, at, rest);
  last[rest] = 0x80;
  const size_t size = rest < 56 ? 64 : 128;
  const uint64_t bits = uint64_t{bytes.size()} * 8;
  for (size_t i = 0; i < 8; ++i) last[size - 1 - i] = static_cast<uint8_t>(bits >> (8 * i));
  add_block(state, last);
  if (size == 128) add_block(state, last + 64);
  std::array<uint8_t, 20> out;
  for (size_t i = 0; i < 20; ++i) out[i] = static_cast<uint8_t>(state[i / 4] >> (24 - 8 * (i % 4)));
  return out;
}

}  // namespace strata::data::dedup
