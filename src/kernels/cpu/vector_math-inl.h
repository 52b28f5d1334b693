// exp, the logistic function, softplus and erfc on f32 vectors, accurate to a few ulp. Polynomials: Chebyshev
// interpolation in 40 digits (tools/golden/vector_math_fit.py).
#if defined(STRATA_KERNELS_CPU_VECTOR_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STRATA_KERNELS_CPU_VECTOR_MATH_INL_H_
#undef STRATA_KERNELS_CPU_VECTOR_MATH_INL_H_
#else
#define STRATA_KERNELS_CPU_VECTOR_MATH_INL_H_
#endif

#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::cpu::HWY_NAMESPACE {

// exp(x) with x clamped to [-87, 88], where result and scale are normal numbers. NaN stays NaN.
HWY_INLINE Vector exp_clamped(Vector x) {
  // The operand order lets NaN through on x86.
  x = hn::Max(constant(-87.0f), hn::Min(constant(88.0f), x));
  // Adding 1.5 * 2^23 leaves the nearest integer n of x / ln 2 in the low bits.
  const Vector shifted = hn::MulAdd(x, constant(1.44269504f), constant(12582912.0f));
  const Vector n = hn::Sub(shifted, constant(12582912.0f));
  // ln 2 in two parts; the first has trailing zeros, so its multiple by n is exact.
  Vector r = hn::NegMulAdd(n, constant(0.693359375f), x);
  r = hn::NegMulAdd(n, constant(-2.12194440e-4f), r);
  // Evaluate terms in parallel, because the latency of the chain limits the loop.
  const Vector square = hn::Mul(r, r);
  const Vector low = hn::MulAdd(r, constant(0.16666577f), constant(0.5f));
  const Vector high = hn::MulAdd(r, constant(0.00836317307f), constant(0.0416665547f));
  const Vector rest = hn::MulAdd(square, hn::MulAdd(square, constant(0.00139261761f), high), low);
  const Vector p = hn::MulAdd(square, rest, hn::Add(r, constant(1.0f)));
  // 2^n by its exponent bits.
  const U32 du;
  return hn::BitCast(F32(), hn::Add(hn::BitCast(du, p), hn::ShiftLeft<23>(hn::BitCast(du, shifted))));
}

// exp(-x) for x in [-87, 87], to two ulp, with fewer operations than exp_clamped; for the activations. NaN
// stays NaN.
HWY_INLINE Vector exp_of_minus(Vector x) {
  const Vector shifted = hn::NegMulAdd(x, constant(1.44269504f), constant(12582912.0f));
  const Vector n = hn::Sub(shifted, constant(12582912.0f));
  // -r; its error of n * 2e-9 is below that of the polynomial unless the result is extreme.
  const Vector r = hn::MulAdd(n, constant(0.693147182f), x);
  const Vector square = hn::Mul(r, r);
  const Vector low = hn::MulAdd(r, constant(-0.166671157f), constant(0.499992311f));
  const Vector high = hn::MulAdd(r, constant(-0.00831250194f), constant(0.0418903343f));
  const Vector p = hn::MulAdd(square, hn::MulAdd(square, high, low), hn::Sub(constant(1.0f), r));
  const U32 du;
  return hn::BitCast(F32(), hn::Add(hn::BitCast(du, p), hn::ShiftLeft<23>(hn::BitCast(du, shifted))));
}

// Clamps x to [-bound, bound]. The operand order lets NaN through on x86.
HWY_INLINE Vector clamped(Vector x, float bound) {
  return hn::Max(constant(-bound), hn::Min(constant(bound), x));
}

// s = 1 / (1 + exp(-x)) and its complement 1 - s without cancellation, for x in [-87, 87].
struct Logistic {
  Vector s, complement;
};
HWY_INLINE Logistic logistic(Vector x) {
  const Vector e = exp_of_minus(x);
  const Vector s = hn::Div(constant(1.0f), hn::Add(constant(1.0f), e));
  return {s, hn::Mul(e, s)};
}
// numerator / (1 + exp(-x)), for x in [-87, 87]: numerator times the logistic function, in one division.
HWY_INLINE Vector logistic_times(Vector numerator, Vector x) {
  return hn::Div(numerator, hn::Add(constant(1.0f), exp_of_minus(x)));
}

// log(1 + exp(x)) and its slope, the logistic function, for any x, without overflow or cancellation:
// max(x, 0) + log1p(exp(-|x|)), where log1p(e) = 2 atanh(s) with s = e / (2 + e) ≤ 1/3. Below -87 the value
// is that at -87, 1.6e-38. NaN stays NaN.
struct Softplus {
  Vector value, slope;
};
HWY_INLINE Softplus softplus(Vector x) {
  const Vector one = constant(1.0f);
  const Vector e = exp_of_minus(hn::Min(constant(87.0f), hn::Abs(x)));
  const Vector s = hn::Div(e, hn::Add(one, hn::Add(one, e)));
  const Vector square = hn::Mul(s, s);
  Vector p = constant(0.140788892f);
  for (const float c : {0.139825789f, 0.200122976f, 0.333331608f, 1.0f})
    p = hn::MulAdd(p, square, constant(c));
  const Vector above = hn::Div(one, hn::Add(one, e));
  const auto negative = hn::Lt(x, zero());
  return {hn::MulAdd(hn::Add(s, s), p, hn::Max(zero(), x)),
          hn::IfThenElse(negative, hn::Mul(e, above), above)};
}

// The normal distribution at x: cumulative Phi(x) = erfc(-x / sqrt 2) / 2, and density.
// For z >= 0, erfc(z) = exp(-z²) t P(t) with t = 1 / (1 + z / 2).
struct Normal {
  Vector cumulative, density;
};
HWY_INLINE Normal normal(Vector x) {
  x = hn::Max(constant(-13.0f),
              hn::Min(constant(13.0f), x));  // beyond, Phi is 0 or 1 and the square could overflow
  const Vector z = hn::Mul(hn::Abs(x), constant(0.707106781f));
  const Vector t = hn::Div(constant(1.0f), hn::MulAdd(z, constant(0.5f), constant(1.0f)));
  Vector p = constant(-0.0592518615f);
  for (const float c : {0.285567482f, -0.489442964f, 0.280815457f, -0.0286130139f, 0.203550254f, 0.242885177f,
                        0.282404593f, 0.282084837f}) {
    p = hn::MulAdd(p, t, constant(c));
  }
  // exp(-x²/2) from x itself, with a first-order correction for the rounding error of the square.
  const Vector square = hn::Mul(x, x);
  const Vector rest = hn::MulSub(x, x, square);
  const Vector half = constant(-0.5f);
  const Vector e = exp_clamped(hn::Mul(square, half));
  const Vector gauss = hn::MulAdd(e, hn::Mul(rest, half), e);
  const Vector tail = hn::Mul(hn::Mul(gauss, constant(0.5f)), hn::Mul(t, p));
  const Vector cumulative = hn::IfThenElse(hn::Lt(x, zero()), tail, hn::Sub(constant(1.0f), tail));
  return {cumulative, hn::Mul(gauss, constant(0.398942280f))};
}

}  // namespace strata::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
