#include <algorithm>
#include <cstring>

#include "quantize/tiles.h"
#include "tensor/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quantize/decode.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h comes first
#include "quantize/bytes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::quantize::tiles::HWY_NAMESPACE {

// The values of codes, one a lane.
class Values {
 public:
  Values(const FormatSpec& spec, float factor)
      : code_mask_(integer(spec.codes() - 1)),
        sign_bit_(integer(spec.sign_bit())),
        greatest_(integer(spec.greatest)),
        infinity_(integer(spec.infinity ? spec.greatest + 1 : 0)),
        normal_bias_(integer(static_cast<uint32_t>(127 - spec.bias) << 23)),
        least_normal_(integer(1u << spec.mantissa_bits)),
        aligner_(integer(static_cast<uint32_t>(128 - spec.bias) << 23)),
        factor_(constant(factor)),
        shift_(23 - spec.mantissa_bits),
        sign_shift_(32 - spec.bits()),
        no_negative_zero_(spec.sign == Sign::kNoNegativeZero),
        scales_(factor != 1.0f) {}

  HWY_INLINE Vector operator()(IntVector codes) const {
    const I32 di;
    const IntVector code = hn::And(codes, code_mask_), sign = hn::And(code, sign_bit_);
    const IntVector magnitude = hn::AndNot(sign_bit_, code), bits = hn::ShiftLeftSame(magnitude, shift_);
    const IntVector normal = hn::Add(bits, normal_bias_);
    // A significand with a leading one, less that one: no operand is a subnormal fp32 number, which threads flush.
    const auto subnormal = hn::Sub(hn::BitCast(F32(), hn::Add(bits, aligner_)), hn::BitCast(F32(), aligner_));
    IntVector value =
        hn::IfThenElse(hn::Lt(magnitude, least_normal_), hn::BitCast(di, subnormal), normal);
    const IntVector special = hn::IfThenElse(hn::Eq(magnitude, infinity_), integer(0x7f800000u), nan());
    value = hn::IfThenElse(hn::Gt(magnitude, greatest_), special, value);
    value = hn::Or(value, hn::ShiftLeftSame(sign, sign_shift_));
    if (no_negative_zero_) value = hn::IfThenElse(hn::Eq(code, sign_bit_), nan(), value);
    const Vector number = hn::BitCast(F32(), value);
    return scales_ ? hn::Mul(number, factor_) : number;
  }

 private:
  static HWY_INLINE IntVector integer(uint32_t bits) { return hn::Set(I32(), static_cast<int32_t>(bits)); }
  static HWY_INLINE IntVector nan() { return integer(0x7fc00000u); }

  IntVector code_mask_, sign_bit_, greatest_, infinity_, normal_bias_, least_normal_, aligner_;
  Vector factor_;
  int shift_, sign_shift_;
  bool no_negative_zero_, scales_;
};

HWY_INLINE IntVector load_bytes(const uint8_t* from, Whole) {
  return hn::PromoteTo(I32(), hn::LoadU(U8(), from));
}
HWY_INLINE IntVector load_bytes(const uint8_t* from, Part part) {
  HWY_ALIGN uint8_t buffer[HWY_LANES(float)] = {};
  std::memcpy(buffer, from, part.count);
  return load_bytes(buffer, Whole());
}

HWY_INLINE void store_values(Vector values, float* to, Whole span) {
  store(to, values, span);
}
HWY_INLINE void store_values(Vector values, float* to, Part span) {
  store(to, values, span);
}
// The upper halves of the words: exact, as the caller promises.
HWY_INLINE void store_values(Vector values, BF16* to, Whole) {
  const hn::Rebind<uint16_t, F32> d16;
  const auto halves = hn::ShiftRight<16>(hn::BitCast(U32(), values));
  hn::StoreU(hn::DemoteTo(d16, hn::BitCast(I32(), halves)), d16, &to->bits);
}
HWY_INLINE void store_values(Vector values, BF16* to, Part part) {
  HWY_ALIGN BF16 buffer[HWY_LANES(float)];
  store_values(values, buffer, Whole());
  std::memcpy(to, buffer, part.count * sizeof(BF16));
}

// Two codes of four bits in each byte, the first in the lower half.
inline void unpack_pairs(const uint8_t* from, int64_t n, uint8_t* codes) {
  int64_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::ScalableTag<uint16_t> d;
  const hn::Rebind<uint8_t, decltype(d)> half;
  const auto step = 2 * static_cast<int64_t>(hn::Lanes(d));
  for (; i + step <= n; i += step) {
    const auto both = hn::PromoteTo(d, hn::LoadU(half, from + i / 2));
    const auto apart = hn::And(hn::Or(both, hn::ShiftLeft<4>(both)), hn::Set(d, 0x0f0f));
    hn::StoreU(apart, d, reinterpret_cast<uint16_t*>(codes + i));
  }
#endif
  for (; i < n; ++i) codes[i] = from[i / 2] >> (i % 2 * 4) & 15;
}

template <typename T>
void decode_codes(const Values& values, const uint8_t* codes, int64_t n, T* out) {
  for_vectors(n, [&](int64_t i, auto span)
                     HWY_ATTR { store_values(values(load_bytes(codes + i, span)), out + i, span); });
}

template <typename T>
void decode_run_of(Format format, const uint8_t* codes, int64_t n, float factor, T* out) {
  const FormatSpec spec = spec_of(format);
  const Values values(spec, factor);
  if (spec.bits() != 4) return decode_codes(values, codes, n, out);
  constexpr int64_t kRun = 512;
  alignas(64) uint8_t buffer[kRun];
  for (int64_t done = 0; done < n; done += kRun) {
    const int64_t count = std::min(kRun, n - done);
    unpack_pairs(codes + done / 2, count, buffer);
    decode_codes(values, buffer, count, out + done);
  }
}

void DecodeFloats(Format format, const uint8_t* codes, int64_t n, float factor, float* out) {
  decode_run_of(format, codes, n, factor, out);
}
void DecodeHalves(Format format, const uint8_t* codes, int64_t n, float factor, BF16* out) {
  decode_run_of(format, codes, n, factor, out);
}

}  // namespace strata::quantize::tiles::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::quantize::tiles {

HWY_EXPORT(DecodeFloats);
HWY_EXPORT(DecodeHalves);

void decode_run(Format format, const uint8_t* codes, int64_t n, float factor, float* out) {
  HWY_DYNAMIC_DISPATCH(DecodeFloats)(format, codes, n, factor, out);
}
void decode_run(Format format, const uint8_t* codes, int64_t n, float factor, BF16* out) {
  HWY_DYNAMIC_DISPATCH(DecodeHalves)(format, codes, n, factor, out);
}

}  // namespace strata::quantize::tiles
#endif
