// Rounds vectors of floats to the codes of a format (encode() in formats.h). Compiled once for every SIMD target:
// include it after <hwy/foreach_target.h>.
#if defined(STRATA_QUANTIZE_ROUND_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STRATA_QUANTIZE_ROUND_INL_H_
#undef STRATA_QUANTIZE_ROUND_INL_H_
#else
#define STRATA_QUANTIZE_ROUND_INL_H_
#endif

#include <bit>
#include <cstring>

#include "quantize/formats.h"
#include "tensor/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::quantize::tiles::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using simd::HWY_NAMESPACE::constant;
using simd::HWY_NAMESPACE::F32;
using simd::HWY_NAMESPACE::for_vectors;
using simd::HWY_NAMESPACE::lanes;
using simd::HWY_NAMESPACE::load;
using simd::HWY_NAMESPACE::Part;
using simd::HWY_NAMESPACE::store;
using simd::HWY_NAMESPACE::U32;
using simd::HWY_NAMESPACE::Vector;
using simd::HWY_NAMESPACE::Whole;
using I32 = hn::RebindToSigned<F32>;
using U8 = hn::Rebind<uint8_t, F32>;  // as many lanes as F32
using IntVector = hn::Vec<I32>;

// What both ways of rounding share: the sign, the largest value and NaN. kInRange: the caller knows that there is no NaN
// and nothing that rounds to more than the largest value.
template <bool kInRange>
class Codes8 {
 public:
  explicit Codes8(const FormatSpec& spec)
      : most_(hn::Set(I32(), std::bit_cast<int32_t>(float_of_greatest(spec)))),
        nan_(hn::Set(I32(), static_cast<int32_t>(spec.nan()))),
        sign_bit_(hn::Set(I32(), static_cast<int32_t>(spec.sign_bit()))),
        sign_shift_(32 - spec.bits()),
        no_negative_zero_(spec.sign == Sign::kNoNegativeZero) {}

 protected:
  // Magnitude, clamped: NaN becomes the largest value until finish().
  HWY_INLINE IntVector clamped(Vector v) const {
    const IntVector magnitude = hn::And(hn::BitCast(I32(), v), hn::Set(I32(), 0x7fffffff));
    return kInRange ? magnitude : hn::Min(magnitude, most_);
  }
  HWY_INLINE IntVector finish(Vector v, IntVector code) const {
    const auto shifted = hn::BitCast(I32(), hn::ShiftRightSame(hn::BitCast(U32(), v), sign_shift_));
    auto sign_bit = sign_bit_;
    if (no_negative_zero_) sign_bit = hn::IfThenZeroElse(hn::Eq(code, hn::Zero(I32())), sign_bit);
    const IntVector signed_code = hn::OrAnd(code, shifted, sign_bit);
    if (kInRange) return signed_code;
    return hn::IfThenElse(hn::RebindMask(I32(), hn::IsNaN(v)), nan_, signed_code);
  }

 private:
  static float float_of_greatest(const FormatSpec& spec) {
    const uint32_t exponent = spec.greatest >> spec.mantissa_bits;
    const uint32_t mantissa = spec.greatest & ((1u << spec.mantissa_bits) - 1);
    return std::bit_cast<float>((exponent + 127u - static_cast<uint32_t>(spec.bias)) << 23 |
                                mantissa << (23 - spec.mantissa_bits));
  }

  IntVector most_, nan_, sign_bit_;
  int sign_shift_;
  bool no_negative_zero_;
};

template <bool kInRange>
class Nearest : public Codes8<kInRange> {
 public:
  static constexpr bool kRandom = false;
  explicit Nearest(const FormatSpec& spec)
      : Codes8<kInRange>(spec),
        shift_(23 - spec.mantissa_bits),
        // Almost half a quantum, and the change of the exponent's bias.
        addend_(hn::Set(I32(), (1 << (shift_ - 1)) - 1 - ((127 - spec.bias) << 23))),
        least_normal_(hn::Set(I32(), (128 - spec.bias) << 23)),
        aligner_(hn::Set(I32(), (127 + 1 - spec.bias + shift_) << 23)) {}

  HWY_INLINE IntVector operator()(Vector v, const uint32_t*) const {
    const IntVector magnitude = this->clamped(v);
    const auto odd = hn::And(hn::ShiftRightSame(magnitude, shift_), hn::Set(I32(), 1));
    const auto normal = hn::ShiftRightSame(hn::Add(hn::Add(magnitude, addend_), odd), shift_);
    // Adding the power of two whose last bit is a quantum aligns and rounds smaller values than the least normal one.
    const auto sum = hn::Add(hn::BitCast(F32(), magnitude), hn::BitCast(F32(), aligner_));
    const auto subnormal = hn::Sub(hn::BitCast(I32(), sum), aligner_);
    return this->finish(v, hn::IfThenElse(hn::Lt(magnitude, least_normal_), subnormal, normal));
  }

 private:
  int shift_;
  IntVector addend_, least_normal_, aligner_;
};

class Stochastic : public Codes8<false> {
 public:
  static constexpr bool kRandom = true;
  explicit Stochastic(const FormatSpec& spec)
      : Codes8<false>(spec),
        mantissa_bits_(spec.mantissa_bits),
        least_exponent_(hn::Set(I32(), 128 - spec.bias)),
        inverse_(hn::Set(I32(), 254 + spec.mantissa_bits)) {}

  HWY_INLINE IntVector operator()(Vector v, const uint32_t* words) const {
    const I32 di;
    const IntVector magnitude = clamped(v);
    const auto exponent = hn::Max(hn::ShiftRight<23>(magnitude), least_exponent_);
    // 1 / quantum, a power of two, so that multiplying is exact.
    const auto inverse = hn::BitCast(F32(), hn::ShiftLeft<23>(hn::Sub(inverse_, exponent)));
    const auto quanta = hn::Mul(hn::BitCast(F32(), magnitude), inverse);
    const auto whole = hn::ConvertTo(di, quanta);
    const auto rest = hn::Sub(quanta, hn::ConvertTo(F32(), whole));
    const auto bits = hn::BitCast(di, hn::ShiftRight<8>(hn::LoadU(U32(), words)));
    const auto uniform = hn::Mul(hn::ConvertTo(F32(), bits), constant(0x1p-24f));
    const auto up = hn::RebindMask(di, hn::Ge(rest, hn::Sub(constant(1.0f), uniform)));
    // A lane of a true mask is -1.
    const auto rounded = hn::Sub(whole, hn::VecFromMask(di, up));
    const auto base = hn::ShiftLeftSame(hn::Sub(exponent, least_exponent_), mantissa_bits_);
    return finish(v, hn::Add(base, rounded));
  }

 private:
  int mantissa_bits_;
  IntVector least_exponent_, inverse_;
};

}  // namespace strata::quantize::tiles::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
