// RMS normalisation of one row and its gradient, for whole rows (rms_norm.cpp) and for heads (qk_norm.cpp).
#if defined(STRATA_KERNELS_CPU_RMS_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STRATA_KERNELS_CPU_RMS_ROWS_INL_H_
#undef STRATA_KERNELS_CPU_RMS_ROWS_INL_H_
#else
#define STRATA_KERNELS_CPU_RMS_ROWS_INL_H_
#endif

#include <cmath>

#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::cpu::HWY_NAMESPACE {

// y = x * rstd * (weight + weight_offset).
template <typename T>
void scale_row(int64_t dim, float weight_offset, T* y, const T* x, float rstd, const float* weight) {
  const Vector offset = constant(weight_offset), factor = constant(rstd);
  for_vectors(dim, [&](int64_t i, auto span) HWY_ATTR {
    store(y + i, hn::Mul(hn::Mul(load(x + i, span), factor), hn::Add(load(weight + i, span), offset)), span);
  });
}

template <typename T>
void forward_row(int64_t dim, float eps, float weight_offset, T* y, T* h, float* rstd, const T* x,
                 const T* residual, const float* weight) {
  float squares = 0;
  if (residual != nullptr) {
    squares = sum_over(dim, [&](int64_t i, auto span, Vector sum) HWY_ATTR {
      const Vector s = store(h + i, hn::Add(load(x + i, span), load(residual + i, span)), span);
      return hn::MulAdd(s, s, sum);
    });
    x = h;
  } else {
    squares = sum_over(dim, [&](int64_t i, auto span, Vector sum) HWY_ATTR {
      const Vector s = load(x + i, span);
      return hn::MulAdd(s, s, sum);
    });
  }
  *rstd = 1.0f / std::sqrt(squares / static_cast<float>(dim) + eps);
  scale_row(dim, weight_offset, y, x, *rstd, weight);
}

// The sum of dy * (weight + weight_offset) * h.
template <typename T>
float dot_of_row(int64_t dim, float weight_offset, const T* dy, const T* h, const float* weight) {
  const Vector offset = constant(weight_offset);
  return sum_over(dim, [&](int64_t i, auto span, Vector sum) HWY_ATTR {
    return hn::MulAdd(hn::Mul(load(dy + i, span), hn::Add(load(weight + i, span), offset)), load(h + i, span),
                      sum);
  });
}

// dx = rstd * (g - xhat * slope) + dh; g = dy * weight, xhat = h * rstd, slope = mean(g * xhat).
template <typename T>
void backward_row_by(int64_t dim, float weight_offset, T* dx, const T* dy, const T* h, float rstd,
                     float slope, const float* weight, const T* dh) {
  const Vector offset = constant(weight_offset), factor = constant(rstd), mean = constant(slope);
  const auto gradient = [&](int64_t i, auto span) HWY_ATTR {
    const Vector g = hn::Mul(load(dy + i, span), hn::Add(load(weight + i, span), offset));
    const Vector xhat = hn::Mul(load(h + i, span), factor);
    return hn::Mul(factor, hn::NegMulAdd(xhat, mean, g));
  };
  if (dh != nullptr) {
    for_vectors(dim, [&](int64_t i, auto span)
                         HWY_ATTR { store(dx + i, hn::Add(gradient(i, span), load(dh + i, span)), span); });
  } else {
    for_vectors(dim, [&](int64_t i, auto span) HWY_ATTR { store(dx + i, gradient(i, span), span); });
  }
}
template <typename T>
void backward_row(int64_t dim, float weight_offset, T* dx, const T* dy, const T* h, float rstd,
                  const float* weight, const T* dh) {
  const float dot = dot_of_row(dim, weight_offset, dy, h, weight);
  backward_row_by(dim, weight_offset, dx, dy, h, rstd, dot * rstd / static_cast<float>(dim), weight, dh);
}

}  // namespace strata::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
