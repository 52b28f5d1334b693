// Hashes for identity and integrity (XXH3): not against an adversary.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace strata {

uint64_t hash64(const void* bytes, size_t size, uint64_t seed = 0);
inline uint64_t hash64(std::string_view text, uint64_t seed = 0) {
  return hash64(text.data(), text.size(), seed);
}

// 16 hexadecimal digits.
std::string to_hex(uint64_t value);

// Streaming XXH3-64: the same value as hash64 over the concatenation.
class Hasher {
 public:
  Hasher();
  ~Hasher();
  Hasher(Hasher&&) noexcept;
  Hasher& operator=(Hasher&&) noexcept;
  void update(const void* bytes, size_t size);
  void update(std::string_view text) { update(text.data(), text.size()); }
  uint64_t digest() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace strata
