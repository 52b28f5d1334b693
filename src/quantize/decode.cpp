#include <algorithm>
#include <cstring>
#include <type_traits>

#include "quantize/tiles.h"
#include "tensor/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quantize/decode.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h comes first
#include "quantize/bytes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::quantize::tiles::HWY_NAMESPACE {

// The values of codes, one a lane. kNoNegativeZero, whether NaN takes the place of negative zero, is a constant for the
// compiler, which keeps loops free of branches.
template <bool kNoNegativeZero>
class Values {
 public:
  explicit Values(const FormatSpec& spec)
      : code_mask_(integer(spec.codes() - 1)),
        sign_bit_(integer(spec.sign_bit())),
        greatest_(integer(spec.greatest)),
        infinity_(integer(spec.infinity ? spec.greatest + 1 : 0)),
        normal_bias_(integer(static_cast<uint32_t>(127 - spec.bias) << 23)),
        least_normal_(integer(1u << spec.mantissa_bits)),
        aligner_(integer(static_cast<uint32_t>(128 - spec.bias) << 23)),
        shift_(23 - spec.mantissa_bits),
        sign_shift_(32 - spec.bits()) {}

  HWY_INLINE Vector operator()(IntVector codes) const {
    const I32 di;
    const IntVector code = hn::And(codes, code_mask_), sign = hn::And(code, sign_bit_);
    const IntVector magnitude = hn::AndNot(sign_bit_, code), bits = hn::ShiftLeftSame(magnitude, shift_);
    const IntVector normal = hn::Add(bits, normal_bias_);
    // A significand with a leading one, less that one: no operand is a subnormal fp32 number, which threads flush.
    const auto subnormal = hn::Sub(hn::BitCast(F32(), hn::Add(bits, aligner_)), hn::BitCast(F32(), aligner_));
    IntVector value = hn::IfThenElse(hn::Lt(magnitude, least_normal_), hn::BitCast(di, subnormal), normal);
    const IntVector special = hn::IfThenElse(hn::Eq(magnitude, infinity_), integer(0x7f800000u), nan());
    value = hn::IfThenElse(hn::Gt(magnitude, greatest_), special, value);
    value = hn::Or(value, hn::ShiftLeftSame(sign, sign_shift_));
    if constexpr (kNoNegativeZero) value = hn::IfThenElse(hn::Eq(code, sign_bit_), nan(), value);
    return hn::BitCast(F32(), value);
  }

 private:
  static HWY_INLINE IntVector integer(uint32_t bits) { return hn::Set(I32(), static_cast<int32_t>(bits)); }
  static HWY_INLINE IntVector nan() { return integer(0x7fc00000u); }

  IntVector code_mask_, sign_bit_, greatest_, infinity_, normal_bias_, least_normal_, aligner_;
  int shift_, sign_shift_;
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

#if HWY_TARGET != HWY_SCALAR
// The same in bf16, which has all values, in twice the lanes.
class Halves {
  using U16 = hn::ScalableTag<uint16_t>;
  using Bytes = hn::Repartition<uint8_t, U16>;
  using Words = hn::Vec<U16>;

 public:
  static int64_t lanes() { return static_cast<int64_t>(hn::Lanes(U16())); }
  // Not for formats without negative zero.
  Halves(Format format, const FormatSpec& spec)
      : shift_(7 - spec.mantissa_bits),
        sign_shift_(16 - spec.bits()),
        magnitudes_(word(spec.sign_bit() - 1)),
        sign_bit_(word(spec.sign_bit())),
        greatest_(word(spec.greatest)),
        infinity_(word(spec.infinity ? spec.greatest + 1 : 0)),
        normal_bias_(word(static_cast<uint32_t>(127 - spec.bias) << 7)),
        least_normal_(word(1u << spec.mantissa_bits)),
        subnormals_(hn::LoadDup128(Bytes(), kSubnormals[static_cast<size_t>(format)].data())) {}

  HWY_INLINE void operator()(const uint8_t* codes, BF16* to) const {
    const U16 d;
    const hn::Rebind<uint8_t, U16> half;
    const Words code = hn::PromoteTo(d, hn::LoadU(half, codes));
    const Words magnitude = hn::And(code, magnitudes_);
    const Words normal = hn::Add(hn::ShiftLeftSame(magnitude, shift_), normal_bias_);
    const Words places = hn::Add(hn::Or(magnitude, hn::ShiftLeft<8>(magnitude)), word(0x0800));
    const Words subnormal = hn::BitCast(d, hn::TableLookupBytes(subnormals_, hn::BitCast(Bytes(), places)));
    Words value = hn::IfThenElse(hn::Lt(magnitude, least_normal_), subnormal, normal);
    const Words special = hn::IfThenElse(hn::Eq(magnitude, infinity_), word(0x7f80), word(0x7fc0));
    value = hn::IfThenElse(hn::Gt(magnitude, greatest_), special, value);
    value = hn::Or(value, hn::ShiftLeftSame(hn::And(code, sign_bit_), sign_shift_));
    hn::StoreU(value, d, &to->bits);
  }

 private:
  static HWY_INLINE Words word(uint32_t bits) { return hn::Set(U16(), static_cast<uint16_t>(bits)); }

  int shift_, sign_shift_;
  Words magnitudes_, sign_bit_, greatest_, infinity_, normal_bias_, least_normal_;
  hn::Vec<Bytes> subnormals_;
};

inline void decode_halves(Format format, const FormatSpec& spec, const uint8_t* codes, int64_t n, BF16* out) {
  const Halves halves(format, spec);
  const int64_t step = Halves::lanes();
  int64_t i = 0;
  for (; i + step <= n; i += step) halves(codes + i, out + i);
  if (i == n) return;
  HWY_ALIGN uint8_t last[HWY_MAX_BYTES / 2] = {};
  HWY_ALIGN BF16 values[HWY_MAX_BYTES / 2];
  const auto rest = static_cast<size_t>(n - i);
  std::memcpy(last, codes + i, rest);
  halves(last, values);
  std::memcpy(out + i, values, rest * sizeof(BF16));
}
#endif

// `values` by copy: stores could change what a reference refers to.
template <bool kScales, typename V, typename T>
HWY_INLINE void decode_vectors(const V values, const uint8_t* codes, int64_t n, float factor, T* out) {
  const Vector factors = constant(factor);
  for_vectors(n, [&](int64_t i, auto span) HWY_ATTR {
    const Vector value = values(load_bytes(codes + i, span));
    store_values(kScales ? hn::Mul(value, factors) : value, out + i, span);
  });
}

template <bool kNoNegativeZero, typename T>
void decode_codes([[maybe_unused]] Format format, const FormatSpec& spec, const uint8_t* codes, int64_t n,
                  const BlockFactors& blocks, T* out) {
#if HWY_TARGET != HWY_SCALAR
  if constexpr (!kNoNegativeZero && std::is_same_v<T, BF16>) {
    if (blocks.factors == nullptr) return decode_halves(format, spec, codes, n, out);
  }
#endif
  const Values<kNoNegativeZero> values(spec);
  if (blocks.factors == nullptr) return decode_vectors<false>(values, codes, n, 1.0f, out);
  int64_t left = blocks.width - blocks.first;
  for (int64_t done = 0, block = 0; done < n; ++block) {
    const int64_t count = std::min(left, n - done);
    decode_vectors<true>(values, codes + done, count, blocks.factors[block], out + done);
    done += count;
    left = blocks.width;
  }
}

template <typename T>
void decode_run_of(Format format, const uint8_t* codes, int64_t n, BlockFactors blocks, T* out) {
  const FormatSpec spec = spec_of(format);
  if (spec.sign == Sign::kNoNegativeZero) return decode_codes<true>(format, spec, codes, n, blocks, out);
  if (spec.bits() != 4) return decode_codes<false>(format, spec, codes, n, blocks, out);
  constexpr int64_t kRun = 512;
  alignas(64) uint8_t buffer[kRun];
  for (int64_t done = 0; done < n; done += kRun) {
    const int64_t count = std::min(kRun, n - done);
    unpack_pairs(codes + done / 2, count, buffer);
    decode_codes<false>(format, spec, buffer, count, blocks, out + done);
    if (blocks.factors == nullptr) continue;
    blocks.factors += (blocks.first + count) / blocks.width;
    blocks.first = (blocks.first + count) % blocks.width;
  }
}

void DecodeFloats(Format format, const uint8_t* codes, int64_t n, const BlockFactors& blocks, float* out) {
  decode_run_of(format, codes, n, blocks, out);
}
void DecodeHalves(Format format, const uint8_t* codes, int64_t n, const BlockFactors& blocks, BF16* out) {
  decode_run_of(format, codes, n, blocks, out);
}

}  // namespace strata::quantize::tiles::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::quantize::tiles {

HWY_EXPORT(DecodeFloats);
HWY_EXPORT(DecodeHalves);

void decode_run(Format format, const uint8_t* codes, int64_t n, const BlockFactors& blocks, float* out) {
  HWY_DYNAMIC_DISPATCH(DecodeFloats)(format, codes, n, blocks, out);
}
void decode_run(Format format, const uint8_t* codes, int64_t n, const BlockFactors& blocks, BF16* out) {
  HWY_DYNAMIC_DISPATCH(DecodeHalves)(format, codes, n, blocks, out);
}

}  // namespace strata::quantize::tiles
#endif
