#include "base/parallel.h"
#include "kernels/cpu/activation.h"
#include "kernels/cpu/row_blocks.h"
#include "kernels/cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/gelu.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h comes first
#include "kernels/cpu/simd-inl.h"
#include "kernels/cpu/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::cpu::HWY_NAMESPACE {

// (1 + tanh(u)) / 2 = logistic(2u), which has no cancellation for negative u.
struct GeluTanh {
  static constexpr float kScale = 1.59576912f;  // 2 sqrt(2 / pi)
  // Beyond it the logistic is 0 or 1 to the last bit, and exp(2u) would leave the range of floats.
  static constexpr float kEdge = 9.9f;
  static HWY_INLINE Vector argument(Vector x, Vector square) {
    return hn::Mul(x, hn::MulAdd(square, constant(kScale * 0.044715f), constant(kScale)));
  }
  static HWY_INLINE Vector value(Vector x) {
    const Vector above = hn::Max(constant(-kEdge), x);
    const Vector near = hn::Min(constant(kEdge), above);
    return logistic_times(above, argument(near, hn::Mul(near, near)));
  }
  static HWY_INLINE Vector slope(Vector x) {
    const Vector near = clamped(x, kEdge);
    const Vector square = hn::Mul(near, near);
    const Logistic l = logistic(argument(near, square));
    const Vector inner = hn::MulAdd(square, constant(3 * kScale * 0.044715f), constant(kScale));
    return hn::MulAdd(hn::Mul(near, inner), hn::Mul(l.s, l.complement), l.s);
  }
};

struct GeluErf {
  static HWY_INLINE Vector value(Vector x) { return hn::Mul(x, normal(x).cumulative); }
  static HWY_INLINE Vector slope(Vector x) {
    const Normal at = normal(x);
    const Vector near = hn::Max(constant(-13.0f), hn::Min(constant(13.0f), x));
    return hn::MulAdd(near, at.density, at.cumulative);
  }
};

template <typename Gelu, typename T>
void forward_range(void* y, const void* x, int64_t begin, int64_t end) {
  const T* const in = static_cast<const T*>(x) + begin;
  T* const out = static_cast<T*>(y) + begin;
  for_vectors(end - begin, [&](int64_t i, auto span) HWY_ATTR {
    prefetch(in + i);
    store(out + i, Gelu::value(load(in + i, span)), span);
  });
}

template <typename Gelu, typename T>
void backward_range(void* dx, const void* dy, const void* x, int64_t begin, int64_t end) {
  const T* const in = static_cast<const T*>(x) + begin;
  const T* const grad = static_cast<const T*>(dy) + begin;
  T* const out = static_cast<T*>(dx) + begin;
  for_vectors(end - begin, [&](int64_t i, auto span) HWY_ATTR {
    prefetch(in + i);
    prefetch(grad + i);
    store(out + i, hn::Mul(load(grad + i, span), Gelu::slope(load(in + i, span))), span);
  });
}

void TanhForward(void* y, const void* x, DType dtype, int64_t begin, int64_t end) {
  const auto range = dtype == DType::kBF16 ? forward_range<GeluTanh, BF16> : forward_range<GeluTanh, float>;
  range(y, x, begin, end);
}
void TanhBackward(void* dx, const void* dy, const void* x, DType dtype, int64_t begin, int64_t end) {
  const auto range = dtype == DType::kBF16 ? backward_range<GeluTanh, BF16> : backward_range<GeluTanh, float>;
  range(dx, dy, x, begin, end);
}
void ErfForward(void* y, const void* x, DType dtype, int64_t begin, int64_t end) {
  const auto range = dtype == DType::kBF16 ? forward_range<GeluErf, BF16> : forward_range<GeluErf, float>;
  range(y, x, begin, end);
}
void ErfBackward(void* dx, const void* dy, const void* x, DType dtype, int64_t begin, int64_t end) {
  const auto range = dtype == DType::kBF16 ? backward_range<GeluErf, BF16> : backward_range<GeluErf, float>;
  range(dx, dy, x, begin, end);
}

}  // namespace strata::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::cpu {

HWY_EXPORT(TanhForward);
HWY_EXPORT(TanhBackward);
HWY_EXPORT(ErfForward);
HWY_EXPORT(ErfBackward);

namespace {
constexpr int64_t kGrain = 16384;
}

void gelu_tanh_forward(int64_t n, void* y, const void* x, DType dtype) {
  require_activation_dtype(dtype, "gelu_tanh_forward");
  const auto kernel = HWY_DYNAMIC_DISPATCH(TanhForward);
  parallel_ranges(n, kGrain, [&](int64_t begin, int64_t end) { kernel(y, x, dtype, begin, end); });
}

void gelu_tanh_backward(int64_t n, void* dx, const void* dy, const void* x, DType dtype) {
  require_activation_dtype(dtype, "gelu_tanh_backward");
  const auto kernel = HWY_DYNAMIC_DISPATCH(TanhBackward);
  parallel_ranges(n, kGrain, [&](int64_t begin, int64_t end) { kernel(dx, dy, x, dtype, begin, end); });
}

void gelu_erf_forward(int64_t n, void* y, const void* x, DType dtype) {
  require_activation_dtype(dtype, "gelu_erf_forward");
  const auto kernel = HWY_DYNAMIC_DISPATCH(ErfForward);
  parallel_ranges(n, kGrain, [&](int64_t begin, int64_t end) { kernel(y, x, dtype, begin, end); });
}

void gelu_erf_backward(int64_t n, void* dx, const void* dy, const void* x, DType dtype) {
  require_activation_dtype(dtype, "gelu_erf_backward");
  const auto kernel = HWY_DYNAMIC_DISPATCH(ErfBackward);
  parallel_ranges(n, kGrain, [&](int64_t begin, int64_t end) { kernel(dx, dy, x, dtype, begin, end); });
}

}  // namespace strata::cpu
#endif
