// The random words of consecutive elements (random_word() in formats.h) in vectors. Compiled once for every SIMD
// target: include it after <hwy/foreach_target.h>.
#if defined(STRATA_QUANTIZE_PHILOX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STRATA_QUANTIZE_PHILOX_INL_H_
#undef STRATA_QUANTIZE_PHILOX_INL_H_
#else
#define STRATA_QUANTIZE_PHILOX_INL_H_
#endif

#include <hwy/highway.h>

#include <cstring>

#include "quantize/formats.h"

HWY_BEFORE_NAMESPACE();
namespace strata::quantize::tiles::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Words that random_words() may write beyond those it is asked for: three before the first element, and the rest of a
// vector.
inline constexpr int64_t kRandomMargin = 3 + 4 * static_cast<int64_t>(HWY_LANES(uint64_t)) + 16;

inline constexpr int64_t kPhiloxRounds = 10;

// Makes the words of elements [first, first + n) in `buffer` of n + kRandomMargin, and returns the first one's place.
inline const uint32_t* random_words(const StochasticBits& bits, int64_t first, int64_t n, uint32_t* buffer) {
  const int64_t begin = first / 4, end = (first + n + 3) / 4;
#if HWY_TARGET == HWY_SCALAR
  for (int64_t counter = begin; counter < end; ++counter) {
    const PhiloxWords words =
        philox_words(bits.key.seed, bits.key.stream, static_cast<uint64_t>(counter), bits.step);
    for (int64_t j = 0; j < 4; ++j) buffer[(counter - begin) * 4 + j] = words.at[j];
  }
#else
  // Every lane of 64 bits holds one word in its lower half; the upper half is of no meaning.
  const hn::ScalableTag<uint64_t> d;
  const hn::Repartition<uint32_t, decltype(d)> half;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto m0 = hn::Set(half, 0xD2511F53u), m1 = hn::Set(half, 0xCD9E8D57u);
  const auto low = hn::Set(d, 0xffffffffull);
  HWY_ALIGN uint64_t keys[2 * kPhiloxRounds * HWY_LANES(uint64_t)];
  for (uint32_t round = 0; round < kPhiloxRounds; ++round) {
    const uint32_t k0 = static_cast<uint32_t>(bits.key.seed) + round * 0x9E3779B9u;
    const uint32_t k1 = static_cast<uint32_t>(bits.key.seed >> 32) + round * 0xBB67AE85u;
    hn::Store(hn::Set(d, uint64_t{k0}), d, keys + 2 * round * lanes);
    hn::Store(hn::Set(d, uint64_t{k1}), d, keys + (2 * round + 1) * lanes);
  }
  for (int64_t counter = begin; counter < end; counter += lanes) {
    auto x0 = hn::Iota(d, static_cast<uint64_t>(counter));
    auto x1 = hn::ShiftRight<32>(x0);
    auto x2 = hn::Set(d, uint64_t{bits.key.stream}), x3 = hn::Set(d, uint64_t{bits.step});
    for (int64_t round = 0; round < kPhiloxRounds; ++round) {
      const auto p0 = hn::MulEven(hn::BitCast(half, x0), m0);
      const auto p1 = hn::MulEven(hn::BitCast(half, x2), m1);
      const uint64_t* const of_round = keys + 2 * round * lanes;
      x0 = hn::Xor(hn::Xor(hn::ShiftRight<32>(p1), x1), hn::Load(d, of_round));
      x2 = hn::Xor(hn::Xor(hn::ShiftRight<32>(p0), x3), hn::Load(d, of_round + lanes));
      x1 = p1;
      x3 = p0;
    }
    const auto first_words = hn::Or(hn::And(x0, low), hn::ShiftLeft<32>(x1));
    const auto last_words = hn::Or(hn::And(x2, low), hn::ShiftLeft<32>(x3));
    HWY_ALIGN uint64_t pairs[2 * HWY_LANES(uint64_t)];
    hn::StoreInterleaved2(first_words, last_words, d, pairs);
    std::memcpy(buffer + (counter - begin) * 4, pairs, static_cast<size_t>(lanes) * 16);
  }
#endif
  return buffer + first % 4;
}

}  // namespace strata::quantize::tiles::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
