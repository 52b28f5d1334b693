#include "base/random.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>
#include <utility>

#include "base/error.h"

namespace strata {

std::array<uint32_t, 4> philox(RandomKey key, uint64_t counter, uint32_t counter_high) {
  std::array<uint32_t, 4> x{static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32), key.stream,
                            counter_high};
  auto k0 = static_cast<uint32_t>(key.seed);
  auto k1 = static_cast<uint32_t>(key.seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53} * x[0];
    const uint64_t p1 = uint64_t{0xCD9E8D57} * x[2];
    x = {static_cast<uint32_t>(p1 >> 32) ^ x[1] ^ k0, static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ x[3] ^ k1, static_cast<uint32_t>(p0)};
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return x;
}

void fill_normal(float* out, int64_t n, float std, RandomKey key, int64_t first) {
  int64_t i = 0;
  while (i < n) {
    const int64_t element = first + i;
    const auto bits = philox(key, static_cast<uint64_t>(element) / 4);
    float four[4];
    for (int pair = 0; pair < 2; ++pair) {
      // 1 - u is in (0, 1], so that its logarithm is finite.
      const float radius = std::sqrt(-2.0f * std::log(1.0f - uniform_float(bits[2 * pair])));
      const float angle = 2.0f * std::numbers::pi_v<float> * uniform_float(bits[2 * pair + 1]);
      four[2 * pair] = std * radius * std::cos(angle);
      four[2 * pair + 1] = std * radius * std::sin(angle);
    }
    for (int64_t lane = element % 4; lane < 4 && i < n; ++lane) out[i++] = four[lane];
  }
}

Permutation::Permutation(uint64_t n, uint64_t seed, uint64_t epoch)
    : n_(n),
      half_bits_(std::max(1, (static_cast<int>(std::bit_width(n - 1)) + 1) / 2)),
      key_{seed, 0x5eedu},
      epoch_(epoch) {
  STRATA_CHECK(n >= 1, "a permutation of nothing was asked for");
}

uint64_t Permutation::operator()(uint64_t i) const {
  STRATA_CHECK(i < n_, "index {} is outside a permutation of {}", i, n_);
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  do {
    uint64_t left = i >> half_bits_;
    uint64_t right = i & mask;
    for (uint32_t round = 0; round < 8; ++round) {
      const auto bits = philox({key_.seed ^ (epoch_ * 0x9E3779B97F4A7C15u), key_.stream + round}, right);
      const uint64_t mixed = (uint64_t{bits[1]} << 32 | bits[0]) & mask;
      left ^= mixed;
      std::swap(left, right);
    }
    i = left << half_bits_ | right;
  } while (i >= n_);  // the network permutes a power of two: walk its cycle until inside [0, n)
  return i;
}

}  // namespace strata
