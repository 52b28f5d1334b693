// Steps through the channels of rows, for causal_convolution_tiles-inl.h. Compiled once for every SIMD target:
// include it after <hwy/foreach_target.h>.
#if defined(STRATA_KERNELS_CPU_CAUSAL_CONVOLUTION_STEPS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STRATA_KERNELS_CPU_CAUSAL_CONVOLUTION_STEPS_INL_H_
#undef STRATA_KERNELS_CPU_CAUSAL_CONVOLUTION_STEPS_INL_H_
#else
#define STRATA_KERNELS_CPU_CAUSAL_CONVOLUTION_STEPS_INL_H_
#endif

#include <cstring>
#include <type_traits>

#include "kernels/cpu/activations-inl.h"
#include "kernels/cpu/causal_convolution_rows.h"

HWY_BEFORE_NAMESPACE();
namespace strata::cpu::HWY_NAMESPACE {

// Vectors of a step through the channels of rows of T. A word of two bf16 values takes one instruction to widen
// either, so a step of bf16 has the even channels in one vector and the odd ones in another, unless vectors have
// one lane (by_parity()).
template <typename T>
inline constexpr int kParts = std::is_same_v<T, BF16> ? (by_parity(DType::kBF16, kMaxLanes) ? 2 : 1) : 1;
static_assert(2 * kMaxLanes <= kChannelAlignment);

// body(i, Whole or Part) for consecutive steps that cover [0, n), like for_vectors() but not unrolled: bodies
// of several rows have enough independent work, and must be inlined.
template <typename T, typename Body>
HWY_INLINE void for_steps(int64_t n, const Body& body) {
  const int64_t step = kParts<T> * lanes();
  int64_t i = 0;
  for (; i + step <= n; i += step) body(i, Whole());
  if (i < n) body(i, Part{static_cast<size_t>(n - i)});
}
// body(i, std::integral_constant of the number of vectors, Whole or Part) for steps that cover [0, n): four vectors
// at a time, while four are left.
template <typename T, typename Body>
HWY_INLINE void for_vector_groups(int64_t n, const Body& body) {
  constexpr int kVectors = 4;
  const int64_t step = kParts<T> * lanes(), group = kVectors * lanes();
  constexpr std::integral_constant<int, kParts<T>> kStep;
  int64_t i = 0;
  for (; i + group <= n; i += group) body(i, std::integral_constant<int, kVectors>(), Whole());
  for (; i + step <= n; i += step) body(i, kStep, Whole());
  if (i < n) body(i, kStep, Part{static_cast<size_t>(n - i)});
}
// body(std::integral_constant) for each part of a step.
template <typename T, typename Body>
HWY_INLINE void for_parts(const Body& body) {
  body(std::integral_constant<int, 0>());
  if constexpr (kParts<T> == 2) body(std::integral_constant<int, 1>());
}

#if HWY_TARGET != HWY_SCALAR
using Words = hn::Vec<U32>;  // of two bf16 values
using Halves = hn::Repartition<uint16_t, F32>;
HWY_INLINE Words load_words(const BF16* p, Whole) {
  return hn::BitCast(U32(), hn::LoadU(Halves(), reinterpret_cast<const uint16_t*>(p)));
}
HWY_INLINE Words load_words(const BF16* p, Part part) {
  HWY_ALIGN BF16 buffer[2 * kMaxLanes] = {};
  std::memcpy(static_cast<void*>(buffer), p, part.count * sizeof(BF16));
  return load_words(buffer, Whole());
}
#endif
// A part of the step at p.
template <int kPart, typename T, typename Span>
HWY_INLINE Vector load_part(const T* p, Span span) {
  if constexpr (kParts<T> == 1) {
    return load(p, span);
  } else {
    const auto words = load_words(p, span);
    return hn::BitCast(F32(),
                       kPart == 0 ? hn::ShiftLeft<16>(words) : hn::And(words, hn::Set(U32(), 0xffff0000u)));
  }
}

// Rounds a step to p.
template <typename T, typename Span>
HWY_INLINE void store_parts(T* p, const Vector* v, Span span) {
  store(p, v[0], span);
}
#if HWY_TARGET != HWY_SCALAR
// The bf16 nearest to each lane (ties to even), in the upper half of the word. NaN stays NaN if the lower half
// of its word is zero, as in all that bf16 values and ConvolutionCall's floats result in.
HWY_INLINE Words nearest_upper(Vector v) {
  const Words word = hn::BitCast(U32(), v);
  const Words odd = hn::And(hn::ShiftRight<16>(word), hn::Set(U32(), 1));
  return hn::Add(hn::Add(word, hn::Set(U32(), 0x7fff)), odd);
}
HWY_INLINE void store_parts(BF16* p, const Vector* v, Whole) {
  const auto even = hn::BitCast(Halves(), hn::ShiftRight<16>(nearest_upper(v[0])));
  const auto odd = hn::BitCast(Halves(), nearest_upper(v[1]));
  hn::StoreU(hn::OddEven(odd, even), Halves(), reinterpret_cast<uint16_t*>(p));
}
HWY_INLINE void store_parts(BF16* p, const Vector* v, Part part) {
  HWY_ALIGN BF16 buffer[2 * kMaxLanes];
  store_parts(buffer, v, Whole());
  std::memcpy(static_cast<void*>(p), buffer, part.count * sizeof(BF16));
}
#endif

// Several vectors stage by stage: a processor has too few instructions in flight to overlap the chains of
// vectors that follow each other.
#define STRATA_FOR_EACH_VECTOR _Pragma("GCC unroll 4") for (int v = 0; v < kVectors; ++v)

// factor · 2^x for 1 <= |factor| < 1.5, with a relative error of at most 2^-13. x: clamped to [-125.5, 125.5].
// NaN stays NaN. Polynomial: tools/golden/vector_math_fit.py.
template <int kVectors>
HWY_INLINE void exp2_for_bf16(Vector (&x)[kVectors], float factor, Vector (&to)[kVectors]) {
  const Vector magic = constant(12582912.0f);
  const U32 du;
  Vector shifted[kVectors], f[kVectors];
  STRATA_FOR_EACH_VECTOR x[v] = clamped(x[v], 125.5f);
  STRATA_FOR_EACH_VECTOR shifted[v] = hn::Add(x[v], magic);
  STRATA_FOR_EACH_VECTOR f[v] = hn::Sub(shifted[v], magic);
  STRATA_FOR_EACH_VECTOR f[v] = hn::Sub(x[v], f[v]);
  STRATA_FOR_EACH_VECTOR to[v] =
      hn::MulAdd(f[v], constant(0.0558382829f * factor), constant(0.242639479f * factor));
  STRATA_FOR_EACH_VECTOR to[v] = hn::MulAdd(to[v], f[v], constant(0.693136734f * factor));
  STRATA_FOR_EACH_VECTOR to[v] = hn::MulAdd(to[v], f[v], constant(0.999924557f * factor));
  STRATA_FOR_EACH_VECTOR to[v] =
      hn::BitCast(F32(), hn::Add(hn::BitCast(du, to[v]), hn::ShiftLeft<23>(hn::BitCast(du, shifted[v]))));
}

// SiLU of t = kBF16SiluScale · x, for results that are rounded to bf16, to 2^-9. The relative error of the value
// is at most 2^-13; the error of the slope is at most 2^-13 of the greater of its terms, s and x s (1 - s). Below
// x = -87 the exponential stays at its greatest value; |x| from 2^127.4 on becomes infinite. NaN stays NaN.
struct SiluForBF16 {
  // x / (1 + e) = t / (scale + scale · e).
  template <int kVectors>
  static HWY_INLINE void value(Vector (&t)[kVectors]) {
    Vector near[kVectors], e[kVectors];
    STRATA_FOR_EACH_VECTOR near[v] = t[v];
    exp2_for_bf16(near, kBF16SiluScale, e);
    STRATA_FOR_EACH_VECTOR e[v] = hn::Add(constant(kBF16SiluScale), e[v]);
    STRATA_FOR_EACH_VECTOR t[v] = hn::Div(t[v], e[v]);
  }
  // gradient · s (1 + x (1 - s)).
  template <int kVectors>
  static HWY_INLINE void gradient(Vector (&gradient)[kVectors], Vector (&t)[kVectors]) {
    constexpr float kLn2 = 0.693147181f;
    const Vector one = constant(1.0f);
    Vector s[kVectors], slope[kVectors];
    exp2_for_bf16(t, 1.0f, s);
    STRATA_FOR_EACH_VECTOR s[v] = hn::Add(one, s[v]);
    STRATA_FOR_EACH_VECTOR s[v] = hn::Div(one, s[v]);
    STRATA_FOR_EACH_VECTOR slope[v] = hn::MulAdd(s[v], constant(kLn2), constant(-kLn2));
    STRATA_FOR_EACH_VECTOR gradient[v] = hn::Mul(gradient[v], s[v]);
    STRATA_FOR_EACH_VECTOR slope[v] = hn::MulAdd(t[v], slope[v], one);
    STRATA_FOR_EACH_VECTOR gradient[v] = hn::Mul(gradient[v], slope[v]);
  }
};

// What follows the convolution. z: its value, with SiLU in bf16 times kBF16SiluScale.
template <bool kSilu, typename T>
struct Follows {
  template <int kVectors>
  static HWY_INLINE void value(Vector (&z)[kVectors]) {
    if constexpr (!kSilu) return;
    if constexpr (std::is_same_v<T, BF16>) {
      SiluForBF16::value(z);
    } else {
      STRATA_FOR_EACH_VECTOR z[v] = Silu::value(z[v]);
    }
  }
  // The gradient of the convolution from that of what follows.
  template <int kVectors>
  static HWY_INLINE void gradient(Vector (&gradient)[kVectors], Vector (&z)[kVectors]) {
    if constexpr (!kSilu) return;
    if constexpr (std::is_same_v<T, BF16>) {
      SiluForBF16::gradient(gradient, z);
    } else {
      STRATA_FOR_EACH_VECTOR gradient[v] = hn::Mul(gradient[v], Silu::both(z[v]).slope);
    }
  }
};

}  // namespace strata::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
