// Sums over vectors. Compiled once for every SIMD target: include it after <hwy/foreach_target.h>.
#if defined(STRATA_KERNELS_CPU_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STRATA_KERNELS_CPU_SIMD_INL_H_
#undef STRATA_KERNELS_CPU_SIMD_INL_H_
#else
#define STRATA_KERNELS_CPU_SIMD_INL_H_
#endif

#include "tensor/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using namespace simd::HWY_NAMESPACE;  // NOLINT(google-build-using-namespace): every kernel uses its names

// Sum over [0, n), where term(i, span, sum) returns sum plus its terms. Four chains hide the latency of
// addition; the order depends on n only.
template <typename Term>
HWY_INLINE float sum_over(int64_t n, const Term& term) {
  const int64_t step = lanes();
  Vector a = zero(), b = zero(), c = zero(), d = zero();
  int64_t i = 0;
  for (; i + 4 * step <= n; i += 4 * step) {
    a = term(i, Whole(), a);
    b = term(i + step, Whole(), b);
    c = term(i + 2 * step, Whole(), c);
    d = term(i + 3 * step, Whole(), d);
  }
  for (; i + step <= n; i += step) a = term(i, Whole(), a);
  if (i < n) b = term(i, Part{static_cast<size_t>(n - i)}, b);
  return sum_of_lanes(hn::Add(hn::Add(a, b), hn::Add(c, d)));
}

// Two sums over [0, n) in one pass: term(i, span, first, second) adds to both.
struct TwoSums {
  float first, second;
};
template <typename Term>
HWY_INLINE TwoSums two_sums_over(int64_t n, const Term& term) {
  const int64_t step = lanes();
  Vector a = zero(), b = zero(), c = zero(), d = zero();
  int64_t i = 0;
  for (; i + 2 * step <= n; i += 2 * step) {
    term(i, Whole(), a, b);
    term(i + step, Whole(), c, d);
  }
  for (; i + step <= n; i += step) term(i, Whole(), a, b);
  if (i < n) term(i, Part{static_cast<size_t>(n - i)}, c, d);
  return {sum_of_lanes(hn::Add(a, c)), sum_of_lanes(hn::Add(b, d))};
}

}  // namespace strata::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
