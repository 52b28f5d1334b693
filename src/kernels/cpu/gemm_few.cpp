#include "kernels/cpu/gemm_few.h"

#include <algorithm>
#include <cstddef>

#include "base/parallel.h"
#include "tensor/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/gemm_few.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h comes first
#include <hwy/cache_control.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace strata::cpu::detail {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::ScalableTag<float>;
using Vector = hn::Vec<F32>;

HWY_INLINE Vector Load(const float* from) {
  return hn::LoadU(F32(), from);
}
HWY_INLINE Vector Load(const BF16* from) {
  const hn::Rebind<uint16_t, F32> narrow;
  const hn::RebindToUnsigned<F32> wide;
  const auto bits = hn::LoadU(narrow, reinterpret_cast<const uint16_t*>(from));
  return hn::BitCast(F32(), hn::ShiftLeft<16>(hn::PromoteTo(wide, bits)));
}
HWY_INLINE void Store(float* to, float value) {
  *to = value;
}
HWY_INLINE void Store(BF16* to, float value) {
  *to = BF16(value);
}

// The weight is read row by row as one stream, with the lines to come asked for: a few streams side by side,
// or waiting for the processor to notice a stream, cost a tenth of the bandwidth.
constexpr int64_t kAhead = 1024;  // bytes

// x · w over k elements, four vectors at a time to hide the latency of addition.
template <typename W>
HWY_INLINE float Dot(const float* HWY_RESTRICT x, const W* HWY_RESTRICT w, int64_t k) {
  const F32 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  Vector s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
  int64_t i = 0;
  for (; i + 4 * lanes <= k; i += 4 * lanes) {
    const auto* const ahead = reinterpret_cast<const std::byte*>(w + i) + kAhead;
    for (int64_t byte = 0; byte < 4 * lanes * static_cast<int64_t>(sizeof(W)); byte += 64)
      hwy::Prefetch(ahead + byte);
    s0 = hn::MulAdd(hn::LoadU(d, x + i), Load(w + i), s0);
    s1 = hn::MulAdd(hn::LoadU(d, x + i + lanes), Load(w + i + lanes), s1);
    s2 = hn::MulAdd(hn::LoadU(d, x + i + 2 * lanes), Load(w + i + 2 * lanes), s2);
    s3 = hn::MulAdd(hn::LoadU(d, x + i + 3 * lanes), Load(w + i + 3 * lanes), s3);
  }
  for (; i + lanes <= k; i += lanes) s0 = hn::MulAdd(hn::LoadU(d, x + i), Load(w + i), s0);
  float sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3))));
  for (; i < k; ++i) sum += x[i] * static_cast<float>(w[i]);
  return sum;
}

template <typename W, typename Y>
HWY_INLINE void ColumnsOf(const FewRows& s, const float* x, int64_t x_stride, const W* w, const float* bias,
                          Y* y, int64_t begin, int64_t end) {
  for (int64_t j = begin; j < end; ++j) {
    for (int64_t r = 0; r < s.rows; ++r)
      Store(y + r * s.y_stride + j, Dot(x + r * x_stride, w + j * s.k, s.k) + (bias ? bias[j] : 0.0f));
  }
}

void Columns(const FewRows& s, const float* x, const float* w, const float* bias, float* y, int64_t begin,
             int64_t end) {
  ColumnsOf(s, x, s.x_stride, w, bias, y, begin, end);
}
void ColumnsInBf16(const FewRows& s, const float* x, const BF16* w, const float* bias, void* y, DType y_dtype,
                   int64_t begin, int64_t end) {
  if (y_dtype == DType::kF32) {
    ColumnsOf(s, x, s.k, w, bias, static_cast<float*>(y), begin, end);
  } else {
    ColumnsOf(s, x, s.k, w, bias, static_cast<BF16*>(y), begin, end);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace strata::cpu::detail
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::cpu::detail {

HWY_EXPORT(Columns);
HWY_EXPORT(ColumnsInBf16);

namespace {

int64_t columns_of_task(const FewRows& sizes) {
  constexpr int64_t kElementsPerTask = 1 << 17;
  return std::max<int64_t>(16, kElementsPerTask / std::max<int64_t>(sizes.k, 1));
}

}  // namespace

void multiply_few_rows(const FewRows& sizes, const float* x, const float* w, const float* bias, float* y) {
  parallel_ranges(sizes.n, columns_of_task(sizes), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(Columns)(sizes, x, w, bias, y, begin, end);
  });
}

void multiply_few_rows(const FewRows& sizes, const BF16* x, const BF16* w, const float* bias, void* y,
                       DType y_dtype, float* wide) {
  for (int64_t r = 0; r < sizes.rows; ++r)
    convert(wide + r * sizes.k, DType::kF32, x + r * sizes.x_stride, DType::kBF16, sizes.k);
  parallel_ranges(sizes.n, columns_of_task(sizes), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(ColumnsInBf16)(sizes, wide, w, bias, y, y_dtype, begin, end);
  });
}

}  // namespace strata::cpu::detail
#endif
