#include "kernels/cpu/gemm_few.h"

#include <algorithm>

#include "base/parallel.h"
#include "kernels/cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/gemm_few.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h comes first
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace strata::cpu::detail {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Dot products of one x with four rows of W at once, or with one.
constexpr int kTogether = 4;

template <int kCount>
HWY_INLINE void Dots(float* y, const float* HWY_RESTRICT x, const float* HWY_RESTRICT w, const float* bias,
                     int64_t k) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  hn::Vec<decltype(d)> sums[kCount];
#pragma GCC unroll 4
  for (int r = 0; r < kCount; ++r) sums[r] = hn::Zero(d);
  int64_t i = 0;
  for (; i + lanes <= k; i += lanes) {
    const auto xi = hn::LoadU(d, x + i);
#pragma GCC unroll 4
    for (int r = 0; r < kCount; ++r) sums[r] = hn::MulAdd(xi, hn::LoadU(d, w + r * k + i), sums[r]);
  }
  for (int r = 0; r < kCount; ++r) {
    float sum = hn::GetLane(hn::SumOfLanes(d, sums[r]));
    for (int64_t j = i; j < k; ++j) sum += x[j] * w[r * k + j];
    y[r] = sum + (bias ? bias[r] : 0.0f);
  }
}

void Columns(const FewRows& s, const float* x, const float* w, const float* bias, float* y, int64_t begin,
             int64_t end) {
  int64_t j = begin;
  for (; j + kTogether <= end; j += kTogether) {
    for (int64_t r = 0; r < s.rows; ++r) {
      Dots<kTogether>(y + r * s.y_stride + j, x + r * s.x_stride, w + j * s.k, bias ? bias + j : nullptr,
                      s.k);
    }
  }
  for (; j < end; ++j) {
    for (int64_t r = 0; r < s.rows; ++r) {
      Dots<1>(y + r * s.y_stride + j, x + r * s.x_stride, w + j * s.k, bias ? bias + j : nullptr, s.k);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace strata::cpu::detail
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::cpu::detail {

HWY_EXPORT(Columns);

void multiply_few_rows(const FewRows& sizes, const float* x, const float* w, const float* bias, float* y) {
  constexpr int64_t kElementsPerTask = 1 << 16;
  const int64_t grain = std::max<int64_t>(16, kElementsPerTask / std::max<int64_t>(sizes.k, 1) / 4 * 4);
  parallel_ranges(sizes.n, grain, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(Columns)(sizes, x, w, bias, y, begin, end);
  });
}

}  // namespace strata::cpu::detail
#endif
