// Rounds four vectors of floats at a time to words of four codes, the first vector's in the lowest byte. Compiled once
// for every SIMD target: include it after <hwy/foreach_target.h>.
#if defined(STRATA_QUANTIZE_QUADS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STRATA_QUANTIZE_QUADS_INL_H_
#undef STRATA_QUANTIZE_QUADS_INL_H_
#else
#define STRATA_QUANTIZE_QUADS_INL_H_
#endif

#include "quantize/bytes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::quantize::tiles::HWY_NAMESPACE {

// One vector after the other: of any format and rounding.
template <typename Rounding>
class EachRounded {
 public:
  static constexpr bool kRandom = Rounding::kRandom;
  explicit EachRounded(const FormatSpec& spec) : round_(spec) {}
  // words[0] + i: the random words of a, and so on.
  HWY_INLINE hn::Vec<U32> operator()(Vector a, Vector b, Vector c, Vector d, const uint32_t* const* words,
                                     int64_t i) const {
    return quad(round_(a, words[0] + i), round_(b, words[1] + i), round_(c, words[2] + i),
                round_(d, words[3] + i));
  }

 private:
  Rounding round_;
};

#if HWY_TARGET == HWY_SCALAR
template <int kMantissa, bool kClamp>
using FiniteRounded = EachRounded<Nearest<false>>;
#else
// Numbers other than NaN, to nearest, for formats of 8 bits with negative zero, and e2m1 (kMantissa = 1). Most of the work is done in
// lanes of 16 bits, two numbers in the space of one. kClamp: some may round to more than the largest value.
//
// For m, the power of two below |x| (or the least normal number), x + 1.5 m 2^(23 - kMantissa) is rounded to whole
// quanta, and its lower 16 bits count them; the code is their number plus what m's exponent stands for.
template <int kMantissa, bool kClamp>
class FiniteRounded {
 public:
  static constexpr bool kRandom = false;
  explicit FiniteRounded(const FormatSpec& spec)
      : least_(hn::BitCast(F32(), hn::Set(U32(), static_cast<uint32_t>(128 - spec.bias) << 23))),
        spread_(constant(1.5f * static_cast<float>(1 << (23 - kMantissa)))),
        base_(hn::Set(Halves(), static_cast<uint16_t>((128 - spec.bias) << 7))),
        most_(constant(largest_of(spec))) {}

  HWY_INLINE hn::Vec<U32> operator()(Vector a, Vector b, Vector c, Vector d, const uint32_t* const*,
                                     int64_t) const {
    a = clamped(a);
    b = clamped(b);
    c = clamped(c);
    d = clamped(d);
    const Halves halves;
    const auto sign = hn::Set(halves, 0x8000);
    // Upper halves of the numbers, then lower halves of words that count quanta.
    const auto ac = hn::OddEven(hn::BitCast(halves, c), upper(a)),
               bd = hn::OddEven(hn::BitCast(halves, d), upper(b));
    const auto even = codes(ac, aligned(a), aligned(c)), odd = codes(bd, aligned(b), aligned(d));
    auto signs = hn::OrAnd(hn::ShiftRight<8>(hn::And(ac, sign)), bd, sign);
    if constexpr (kMantissa == 1) signs = hn::ShiftRight<4>(signs);
    return hn::BitCast(U32(), hn::Or(hn::Or(even, hn::ShiftLeft<8>(odd)), signs));
  }

 private:
  using Halves = hn::Repartition<uint16_t, F32>;
  using HalfVector = hn::Vec<Halves>;

  static float largest_of(const FormatSpec& spec) {
    const uint32_t exponent = spec.greatest >> kMantissa, mantissa = spec.greatest & ((1u << kMantissa) - 1);
    return std::bit_cast<float>((exponent + 127u - static_cast<uint32_t>(spec.bias)) << 23 |
                                mantissa << (23 - kMantissa));
  }
  static HWY_INLINE HalfVector upper(Vector v) {
    return hn::BitCast(Halves(), hn::ShiftRight<16>(hn::BitCast(U32(), v)));
  }
  HWY_INLINE Vector clamped(Vector v) const {
    if constexpr (kClamp) return hn::Max(hn::Min(v, most_), hn::Neg(most_));
    return v;
  }
  HWY_INLINE hn::Vec<U32> aligned(Vector v) const {
    const auto exponent = hn::And(v, hn::BitCast(F32(), hn::Set(U32(), 0x7f800000u)));
    return hn::BitCast(U32(), hn::MulAdd(hn::Max(exponent, least_), spread_, v));
  }
  HWY_INLINE HalfVector codes(HalfVector numbers, hn::Vec<U32> first, hn::Vec<U32> second) const {
    const Halves halves;
    const hn::RebindToSigned<Halves> integers;
    const auto quanta =
        hn::OddEven(hn::BitCast(halves, hn::ShiftLeft<16>(second)), hn::BitCast(halves, first));
    const auto exponents = hn::SaturatedSub(hn::And(numbers, hn::Set(halves, 0x7f80)), base_);
    return hn::Add(hn::BitCast(halves, hn::Abs(hn::BitCast(integers, quanta))),
                   hn::ShiftRight<7 - kMantissa>(exponents));
  }

  Vector least_, spread_;
  HalfVector base_;
  Vector most_;
};
#endif

}  // namespace strata::quantize::tiles::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
