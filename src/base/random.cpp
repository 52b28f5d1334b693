#include "base/random.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>
#include <utility>

#include "base/error.h"

namespace strata {

std::array<uint32_t, 4> philox(RandomKey key, uint64_t counter, uint32_t counter_high) {
  const PhiloxWords words = philox_words(key.seed, key.stream, counter, counter_high);
  return {words.at[0], words.at[1], words.at[2], words.at[3]};
}

namespace {

// Counters processed together: plain loops over arrays, which the compiler vectorizes.
constexpr int kLanes = 64;

// ln x for x in (0, 1], x not denormal: x = m·2^e with m in [1/√2, √2), polynomial of cephes' logf.
inline float log_of(float x) {
  const auto bits = std::bit_cast<int32_t>(x) - 0x3f3504f3;
  const auto exponent = static_cast<float>(bits >> 23);
  const float m = std::bit_cast<float>((bits & 0x007fffff) + 0x3f3504f3) - 1.0f;
  const float square = m * m;
  float p = 7.0376836292e-2f;
  for (const float c : {-1.1514610310e-1f, 1.1676998740e-1f, -1.2420140846e-1f, 1.4249322787e-1f,
                        -1.6668057665e-1f, 2.0000714765e-1f, -2.4999993993e-1f, 3.3333331174e-1f}) {
    p = p * m + c;
  }
  return exponent * 0.693147180559945f + (m - 0.5f * square + m * square * p);
}

// Cosine and sine of 2πu for u in [0, 1): quarter turns, and cephes' polynomials within an eighth of a turn.
inline void turn(float u, float& cosine, float& sine) {
  // u is not negative, so cutting rounds.
  // NOLINTNEXTLINE(bugprone-incorrect-roundings)
  const auto quarter = static_cast<int32_t>(4.0f * u + 0.5f);
  const float x = (4.0f * u - static_cast<float>(quarter)) * (std::numbers::pi_v<float> / 2);
  const float z = x * x;
  const float s = x + x * z * (-1.6666654611e-1f + z * (8.3321608736e-3f - z * 1.9515295891e-4f));
  const float c = 1.0f - 0.5f * z +
                  z * z * (4.166664568298827e-2f + z * (-1.388731625493765e-3f + z * 2.443315711809948e-5f));
  const bool odd = (quarter & 1) != 0;
  const float along = odd ? s : c;
  const float across = odd ? c : s;
  cosine = ((quarter + 1) & 2) != 0 ? -along : along;
  sine = (quarter & 2) != 0 ? -across : across;
}

// Box and Muller for the 4 · kLanes normals of counters [counter, counter + kLanes).
void normal_block(float* out, float std, RandomKey key, uint64_t counter) {
  uint32_t x[4][kLanes];
  for (int i = 0; i < kLanes; ++i) {
    const uint64_t at = counter + static_cast<uint64_t>(i);
    x[0][i] = static_cast<uint32_t>(at);
    x[1][i] = static_cast<uint32_t>(at >> 32);
    x[2][i] = key.stream;
    x[3][i] = 0;
  }
  auto k0 = static_cast<uint32_t>(key.seed);
  auto k1 = static_cast<uint32_t>(key.seed >> 32);
  for (int round = 0; round < 10; ++round) {  // philox(), lane by lane
    for (int i = 0; i < kLanes; ++i) {
      const uint64_t p0 = uint64_t{0xD2511F53} * x[0][i];
      const uint64_t p1 = uint64_t{0xCD9E8D57} * x[2][i];
      x[0][i] = static_cast<uint32_t>(p1 >> 32) ^ x[1][i] ^ k0;
      x[1][i] = static_cast<uint32_t>(p1);
      x[2][i] = static_cast<uint32_t>(p0 >> 32) ^ x[3][i] ^ k1;
      x[3][i] = static_cast<uint32_t>(p0);
    }
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  float normals[4][kLanes];
  for (int pair = 0; pair < 4; pair += 2) {
    for (int i = 0; i < kLanes; ++i) {
      // 24 bits, as uniform_float; through int32, which vectors convert.
      const float u = static_cast<float>(static_cast<int32_t>(x[pair][i] >> 8)) * 0x1p-24f;
      const float v = static_cast<float>(static_cast<int32_t>(x[pair + 1][i] >> 8)) * 0x1p-24f;
      float cosine = 0;
      float sine = 0;
      turn(v, cosine, sine);
      // 1 - u is in (0, 1], so that its logarithm is finite.
      const float radius = std * std::sqrt(-2.0f * log_of(1.0f - u));
      normals[pair][i] = radius * cosine;
      normals[pair + 1][i] = radius * sine;
    }
  }
  for (int i = 0; i < kLanes; ++i) {
    for (int lane = 0; lane < 4; ++lane) out[4 * i + lane] = normals[lane][i];
  }
}

}  // namespace

void fill_normal(float* out, int64_t n, float std, RandomKey key, int64_t first) {
  constexpr int64_t kBlock = 4 * kLanes;
  float block[kBlock];
  for (int64_t i = 0; i < n;) {
    const int64_t element = first + i;
    const int64_t skipped = element % 4;
    const int64_t count = std::min(n - i, kBlock - skipped);
    const bool whole = skipped == 0 && count == kBlock;
    normal_block(whole ? out + i : block, std, key, static_cast<uint64_t>(element) / 4);
    if (!whole) std::copy_n(block + skipped, count, out + i);
    i += count;
  }
}

void fill_truncated_normal(float* out, int64_t n, float std, RandomKey key, int64_t first) {
  fill_normal(out, n, std, key, first);
  const float limit = kNormalCut * std;
  for (int64_t i = 0; i < n; ++i) {
    // Few need this: 0.27 %. Each attempt draws separate numbers, so that the result depends only on the
    // element's number.
    for (uint32_t attempt = 1; !(std::abs(out[i]) <= limit); ++attempt) {
      const auto bits = philox(key, static_cast<uint64_t>(first + i), attempt);
      float cosine = 0, sine = 0;
      turn(uniform_float(bits[1]), cosine, sine);
      out[i] = std * std::sqrt(-2.0f * log_of(1.0f - uniform_float(bits[0]))) * cosine;
    }
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
