// f32 vectors over f32, bf16 or fp16 memory, whole or partly filled. Compiled once for every SIMD target:
// include it after <hwy/foreach_target.h>.
#if defined(STRATA_TENSOR_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STRATA_TENSOR_SIMD_INL_H_
#undef STRATA_TENSOR_SIMD_INL_H_
#else
#define STRATA_TENSOR_SIMD_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <cstdint>
#include <cstring>

#include "tensor/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace strata::simd::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::ScalableTag<float>;
using U32 = hn::ScalableTag<uint32_t>;
using U16 = hn::Rebind<uint16_t, F32>;  // as many lanes as F32
using Vector = hn::Vec<F32>;

inline constexpr size_t kMaxLanes = HWY_LANES(float);

HWY_INLINE int64_t lanes() {
  return static_cast<int64_t>(hn::Lanes(F32()));
}
HWY_INLINE Vector constant(float value) {
  return hn::Set(F32(), value);
}
HWY_INLINE Vector zero() {
  return hn::Zero(F32());
}
HWY_INLINE float sum_of_lanes(Vector v) {
  return hn::GetLane(hn::SumOfLanes(F32(), v));
}

// How much of a vector is in memory: all of it, or its first `count` lanes (the others read as zero).
struct Whole {};
struct Part {
  size_t count;
};

HWY_INLINE Vector widen(hn::Vec<U16> bits) {
  return hn::BitCast(F32(), hn::ShiftLeft<16>(hn::PromoteTo(U32(), bits)));
}

// The bf16 nearest to each lane (ties to even; NaN stays NaN), in the lower half of the word. Of vectors of
// any size.
template <typename V>
HWY_INLINE auto nearest_bf16(V v) {
  const hn::RebindToUnsigned<hn::DFromV<V>> du;
  const auto word = hn::BitCast(du, v);
  const auto odd = hn::And(hn::ShiftRight<16>(word), hn::Set(du, 1));
  const auto rounded = hn::Add(hn::Add(word, hn::Set(du, 0x7fff)), odd);
  const auto quiet = hn::Or(word, hn::Set(du, 0x400000));
  const auto nan = hn::RebindMask(du, hn::IsNaN(v));
  return hn::ShiftRight<16>(hn::IfThenElse(nan, quiet, rounded));
}

// The values of fp16 codes in the lower halves of words, as f16_to_float() has them, bit for bit. Integers
// only, so that every instruction set computes the same. Of vectors of any size.
template <typename D>
HWY_INLINE hn::Vec<D> widen_f16(D d, hn::Vec<hn::RebindToUnsigned<D>> bits) {
  const hn::RebindToUnsigned<D> du;
  const hn::RebindToSigned<D> di;
  const auto magnitude = hn::And(bits, hn::Set(du, 0x7fff));
  const auto sign = hn::ShiftLeft<16>(hn::AndNot(hn::Set(du, 0x7fff), bits));
  const auto rebias = hn::Set(du, 112u << 23);
  const auto normal = hn::Add(hn::ShiftLeft<13>(magnitude), rebias);
  const auto signed_magnitude = hn::BitCast(di, magnitude);
  const auto special = hn::Gt(signed_magnitude, hn::Set(di, 0x7bff));  // infinity or NaN
  const auto widened = hn::Add(normal, hn::IfThenElseZero(hn::RebindMask(du, special), rebias));
  const auto subnormal = hn::Mul(hn::ConvertTo(d, signed_magnitude), hn::Set(d, 0x1p-24f));
  const auto small = hn::RebindMask(du, hn::Lt(signed_magnitude, hn::Set(di, 0x400)));
  return hn::BitCast(d, hn::Or(sign, hn::IfThenElse(small, hn::BitCast(du, subnormal), widened)));
}

// The fp16 nearest to each lane (ties to even; too large becomes infinite, NaN the quiet one), in the lower
// half of the word, as float_to_f16() has it. Of vectors of any size.
template <typename V>
HWY_INLINE auto nearest_f16(V v) {
  const hn::DFromV<V> d;
  const hn::RebindToUnsigned<hn::DFromV<V>> du;
  const hn::RebindToSigned<hn::DFromV<V>> di;
  const auto magnitude = hn::And(hn::BitCast(di, v), hn::Set(di, 0x7fffffff));
  const auto odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(di, 1));
  const auto rounded = hn::ShiftRight<13>(hn::Add(hn::Add(magnitude, hn::Set(di, 0xfff)), odd));
  const auto normal = hn::Min(hn::Sub(rounded, hn::Set(di, 112 << 10)), hn::Set(di, 0x7c00));
  // Adding 0.5 aligns and rounds smaller values than the least normal one.
  const auto half = hn::Set(d, 0.5f);
  const auto sum = hn::Add(hn::BitCast(d, magnitude), half);
  const auto subnormal = hn::Sub(hn::BitCast(di, sum), hn::BitCast(di, half));
  const auto finite = hn::IfThenElse(hn::Lt(magnitude, hn::Set(di, 0x38800000)), subnormal, normal);
  const auto code = hn::IfThenElse(hn::RebindMask(di, hn::IsNaN(v)), hn::Set(di, 0x7e00), finite);
  const auto sign = hn::And(hn::ShiftRight<16>(hn::BitCast(du, v)), hn::Set(du, 0x8000));
  return hn::Or(hn::BitCast(du, code), sign);
}

HWY_INLINE Vector load(const float* p, Whole) {
  return hn::LoadU(F32(), p);
}
HWY_INLINE Vector load(const BF16* p, Whole) {
  return widen(hn::LoadU(U16(), reinterpret_cast<const uint16_t*>(p)));
}
HWY_INLINE Vector load(const F16* p, Whole) {
  const auto bits = hn::LoadU(U16(), reinterpret_cast<const uint16_t*>(p));
  return widen_f16(F32(), hn::PromoteTo(U32(), bits));
}
template <typename T>
HWY_INLINE Vector load(const T* p, Part part) {
  HWY_ALIGN T buffer[kMaxLanes] = {};
  std::memcpy(static_cast<void*>(buffer), p, part.count * sizeof(T));
  return load(buffer, Whole());
}

// Asks for what a loop that does much arithmetic reads some rounds later: the hardware's own prefetcher waits
// for loads that such a loop issues late. Past the end of an array it is ignored.
template <typename T>
HWY_INLINE void prefetch(const T* p) {
  hwy::Prefetch(reinterpret_cast<const char*>(p) + 512);
}

// Each store returns what memory now holds: v itself, or v rounded to bf16 or fp16.
HWY_INLINE Vector store(float* p, Vector v, Whole) {
  hn::StoreU(v, F32(), p);
  return v;
}
HWY_INLINE Vector store(BF16* p, Vector v, Whole) {
  const auto word = nearest_bf16(v);
  const hn::RebindToSigned<F32> di;
  hn::StoreU(hn::DemoteTo(U16(), hn::BitCast(di, word)), U16(), reinterpret_cast<uint16_t*>(p));
  return hn::BitCast(F32(), hn::ShiftLeft<16>(word));
}
HWY_INLINE Vector store(F16* p, Vector v, Whole) {
  const auto word = nearest_f16(v);
  const hn::RebindToSigned<F32> di;
  hn::StoreU(hn::DemoteTo(U16(), hn::BitCast(di, word)), U16(), reinterpret_cast<uint16_t*>(p));
  return widen_f16(F32(), word);
}
template <typename T>
HWY_INLINE Vector store(T* p, Vector v, Part part) {
  HWY_ALIGN T buffer[kMaxLanes];
  const Vector stored = store(buffer, v, Whole());
  std::memcpy(static_cast<void*>(p), buffer, part.count * sizeof(T));
  return stored;
}

// v with the lanes that are not in memory set to zero.
HWY_INLINE Vector keep(Vector v, Whole) {
  return v;
}
HWY_INLINE Vector keep(Vector v, Part part) {
  return hn::IfThenElseZero(hn::FirstN(F32(), part.count), v);
}

// body(i, Whole or Part) for consecutive vectors that cover [0, n), unrolled by two while two remain.
template <typename Body>
HWY_INLINE void for_vectors(int64_t n, const Body& body) {
  const int64_t step = lanes();
  int64_t i = 0;
  for (; i + 2 * step <= n; i += 2 * step) {
    body(i, Whole());
    body(i + step, Whole());
  }
  for (; i + step <= n; i += step) body(i, Whole());
  if (i < n) body(i, Part{static_cast<size_t>(n - i)});
}

}  // namespace strata::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
