#include "base/hash.h"

#include <fmt/core.h>
#include <xxhash.h>

#include <new>
#include <utility>

namespace strata {

uint64_t hash64(const void* bytes, size_t size, uint64_t seed) {
  return XXH3_64bits_withSeed(bytes, size, seed);
}

std::string to_hex(uint64_t value) {
  return fmt::format("{:016x}", value);
}

struct Hasher::State {
  XXH3_state_t* xxh = nullptr;
};

Hasher::Hasher() : state_(std::make_unique<State>()) {
  state_->xxh = XXH3_createState();
  if (state_->xxh == nullptr) throw std::bad_alloc();
  XXH3_64bits_reset(state_->xxh);
}
Hasher::~Hasher() {
  if (state_) XXH3_freeState(state_->xxh);
}
Hasher::Hasher(Hasher&&) noexcept = default;
Hasher& Hasher::operator=(Hasher&& other) noexcept {
  std::swap(state_, other.state_);
  return *this;
}
void Hasher::update(const void* bytes, size_t size) {
  XXH3_64bits_update(state_->xxh, bytes, size);
}
uint64_t Hasher::digest() const {
  return XXH3_64bits_digest(state_->xxh);
}

}  // namespace strata
