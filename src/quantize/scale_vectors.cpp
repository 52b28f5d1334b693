#include "quantize/scale_vectors.h"

#include "tensor/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quantize/scale_vectors.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h comes first
#include "quantize/round-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::quantize::tiles::HWY_NAMESPACE {

using WordVector = hn::Vec<U32>;

HWY_INLINE WordVector words(uint32_t bits) {
  return hn::Set(U32(), bits);
}
HWY_INLINE WordVector bits_of(Vector v) {
  return hn::BitCast(U32(), v);
}
HWY_INLINE Vector from_bits(WordVector bits) {
  return hn::BitCast(F32(), bits);
}
// max(v, least) in which NaN of v wins.
HWY_INLINE Vector at_least(Vector v, float least) {
  return hn::IfThenElse(hn::Lt(v, constant(least)), constant(least), v);
}
HWY_INLINE WordVector if_nan(Vector v, uint32_t then, WordVector otherwise) {
  return hn::IfThenElse(hn::RebindMask(U32(), hn::IsNaN(v)), words(then), otherwise);
}

// one(magnitudes, stored, applied) of all vectors.
template <typename One>
HWY_INLINE void each_scale(const float* greatest, int64_t n, uint32_t* stored, float* applied,
                           const One& one) {
  const int64_t step = lanes();
  int64_t i = 0;
  for (; i + step <= n; i += step) {
    WordVector to_store;
    Vector to_apply;
    one(hn::LoadU(F32(), greatest + i), to_store, to_apply);
    hn::StoreU(to_store, U32(), stored + i);
    hn::StoreU(to_apply, F32(), applied + i);
  }
  if (i == n) return;
  HWY_ALIGN float in[HWY_LANES(float)] = {};
  HWY_ALIGN float out[HWY_LANES(float)];
  HWY_ALIGN uint32_t out_words[HWY_LANES(float)];
  const auto count = static_cast<size_t>(n - i);
  std::memcpy(in, greatest + i, count * sizeof(float));
  WordVector to_store;
  Vector to_apply;
  one(hn::Load(F32(), in), to_store, to_apply);
  hn::Store(to_store, U32(), out_words);
  hn::Store(to_apply, F32(), out);
  std::memcpy(stored + i, out_words, count * sizeof(uint32_t));
  std::memcpy(applied + i, out, count * sizeof(float));
}

void BlockScales(const float* greatest, int64_t n, float least, float largest, bool power_of_two,
                 uint32_t* stored, float* applied) {
  each_scale(greatest, n, stored, applied, [&](Vector most, WordVector& to_store, Vector& to_apply) HWY_ATTR {
    const Vector scale = hn::Div(at_least(most, least), constant(largest));
    if (!power_of_two) {
      to_store = if_nan(scale, 0x7fc00000u, bits_of(scale));
      to_apply = scale;
      return;
    }
    const auto above = hn::And(hn::Add(bits_of(scale), words(0x7fffffu)), words(0x7f800000u));
    const auto finite = hn::Lt(hn::BitCast(I32(), scale), hn::Set(I32(), 0x7f800000));
    const Vector power = hn::IfThenElse(hn::RebindMask(F32(), finite), from_bits(above), scale);
    to_store = if_nan(power, 0x7fc00000u, bits_of(power));
    to_apply = hn::Div(constant(1.0f), power);
  });
}

void MxScalesUp(const float* greatest, int64_t n, float largest, uint32_t* stored, float* applied) {
  each_scale(greatest, n, stored, applied, [&](Vector most, WordVector& to_store, Vector& to_apply) HWY_ATTR {
    const auto least = hn::BitCast(I32(), hn::Div(most, constant(largest)));
    // 2^-127 is the subnormal number 0x00400000.
    const auto rounded = hn::ShiftRight<23>(hn::Add(least, hn::Set(I32(), 0x7fffff)));
    auto code = hn::Max(rounded, hn::Set(I32(), 1));
    code = hn::IfThenElseZero(hn::Gt(least, hn::Set(I32(), 0x00400000)), code);
    code = hn::IfThenElse(hn::Gt(least, hn::Set(I32(), 0x7f7fffff)), hn::Set(I32(), 254), code);
    // 2^(127 - code); 1 for the least code, which leaves a block unscaled.
    auto inverse = hn::ShiftLeft<23>(hn::Sub(hn::Set(I32(), 254), code));
    inverse = hn::IfThenElse(hn::Eq(code, hn::Set(I32(), 254)), hn::Set(I32(), 0x00400000), inverse);
    inverse = hn::IfThenElse(hn::Eq(code, hn::Zero(I32())), hn::Set(I32(), 0x3f800000), inverse);
    to_store = if_nan(most, 255, hn::BitCast(U32(), code));
    to_apply = hn::IfThenElse(hn::IsNaN(most), most, hn::BitCast(F32(), inverse));
  });
}

void Nvfp4Scales(const float* greatest, int64_t n, float largest, float of_tensor, float least,
                 uint32_t* stored, float* applied) {
  const Nearest<false> round(spec_of(Format::kE4M3));
  const Vector inverse = constant(1 / of_tensor);
  each_scale(greatest, n, stored, applied, [&](Vector most, WordVector& to_store, Vector& to_apply) HWY_ATTR {
    const Vector scale = hn::Div(hn::Div(most, constant(largest)), constant(of_tensor));
    const auto code = round(at_least(scale, least), nullptr);
    // `least` is a normal number of e4m3.
    const auto bits = hn::Add(hn::ShiftLeft<20>(code), hn::Set(I32(), (127 - 7) << 23));
    const auto nan = hn::Eq(code, hn::Set(I32(), static_cast<int32_t>(spec_of(Format::kE4M3).nan())));
    const auto value = hn::IfThenElse(nan, hn::Set(I32(), 0x7fc00000), bits);
    to_store = hn::BitCast(U32(), code);
    to_apply = hn::Div(inverse, hn::BitCast(F32(), value));
  });
}

bool AllFinite(const float* magnitudes, int64_t n) {
  const int64_t step = lanes();
  auto most = hn::Zero(I32());
  int64_t i = 0;
  for (; i + step <= n; i += step) most = hn::Max(most, hn::BitCast(I32(), hn::LoadU(F32(), magnitudes + i)));
  int32_t rest = 0;
  for (; i < n; ++i) rest = std::max(rest, std::bit_cast<int32_t>(magnitudes[i]));
  return std::max(rest, hn::GetLane(hn::MaxOfLanes(I32(), most))) < 0x7f800000;
}

}  // namespace strata::quantize::tiles::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::quantize::tiles {

HWY_EXPORT(BlockScales);
HWY_EXPORT(MxScalesUp);
HWY_EXPORT(Nvfp4Scales);
HWY_EXPORT(AllFinite);

void block_scales(const float* greatest, int64_t n, float least, float largest, bool power_of_two,
                  uint32_t* stored, float* applied) {
  HWY_DYNAMIC_DISPATCH(BlockScales)(greatest, n, least, largest, power_of_two, stored, applied);
}
void mx_scales_up(const float* greatest, int64_t n, float largest, uint32_t* stored, float* applied) {
  HWY_DYNAMIC_DISPATCH(MxScalesUp)(greatest, n, largest, stored, applied);
}
void nvfp4_scales(const float* greatest, int64_t n, float largest, float of_tensor, float least,
                  uint32_t* stored, float* applied) {
  HWY_DYNAMIC_DISPATCH(Nvfp4Scales)(greatest, n, largest, of_tensor, least, stored, applied);
}
bool all_finite(const float* magnitudes, int64_t n) {
  return HWY_DYNAMIC_DISPATCH(AllFinite)(magnitudes, n);
}

}  // namespace strata::quantize::tiles
#endif
