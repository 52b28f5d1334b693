// A fast hash for short byte strings, for tables in memory only. Not stored in files: those take base/hash.h.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

namespace strata::data {

inline uint64_t mix_hash(uint64_t a, uint64_t b) {
  const auto product = static_cast<unsigned __int128>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

inline uint64_t short_hash(std::string_view bytes) {
  constexpr uint64_t kOne = 0x9E3779B97F4A7C15u, kTwo = 0xE7037ED1A0B428DBu;
  const auto load8 = [](const char* p) {
    uint64_t x;
    std::memcpy(&x, p, 8);
    return x;
  };
  const auto load4 = [](const char* p) {
    uint32_t x;
    std::memcpy(&x, p, 4);
    return uint64_t{x};
  };
  const char* p = bytes.data();
  size_t n = bytes.size();
  uint64_t a = 0, b = 0, state = kOne * (n + 1);
  if (n > 16) {
    for (; n > 16; n -= 16, p += 16) state = mix_hash(load8(p) ^ kTwo, load8(p + 8) ^ state);
    a = load8(p + n - 16);
    b = load8(p + n - 8);
  } else if (n >= 8) {
    a = load8(p);
    b = load8(p + n - 8);
  } else if (n >= 4) {
    a = load4(p);
    b = load4(p + n - 4);
  } else if (n > 0) {
    const auto byte = [p](size_t i) { return uint64_t{static_cast<uint8_t>(p[i])}; };
    a = byte(0) << 16 | byte(n / 2) << 8 | byte(n - 1);
  }
  return mix_hash(kTwo, mix_hash(a ^ kTwo, b ^ state));
}

}  // namespace strata::data
