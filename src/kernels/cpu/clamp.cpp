#include "kernels/cpu/clamp.h"

#include "base/parallel.h"
#include "kernels/cpu/by_dtype.h"
#include "kernels/cpu/row_blocks.h"
#include "tensor/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/clamp.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h comes first
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::cpu::HWY_NAMESPACE {

template <typename T>
void clamp_range(void* y, const void* x, float limit, int64_t begin, int64_t end) {
  const T* const from = static_cast<const T*>(x) + begin;
  T* const to = static_cast<T*>(y) + begin;
  const Vector most = constant(limit), least = constant(-limit);
  for_vectors(end - begin, [&](int64_t i, auto span) HWY_ATTR {
    store(to + i, hn::Min(hn::Max(load(from + i, span), least), most), span);
  });
}

template <typename T>
void clamp_grad_range(void* dx, const void* dy, const void* x, float limit, int64_t begin, int64_t end) {
  const T* const from = static_cast<const T*>(x) + begin;
  const T* const grad = static_cast<const T*>(dy) + begin;
  T* const to = static_cast<T*>(dx) + begin;
  const Vector most = constant(limit);
  for_vectors(end - begin, [&](int64_t i, auto span) HWY_ATTR {
    const auto inside = hn::Le(hn::Abs(load(from + i, span)), most);
    store(to + i, hn::IfThenElseZero(inside, load(grad + i, span)), span);
  });
}

void ClampRange(void* y, const void* x, float limit, DType dtype, int64_t begin, int64_t end) {
  const auto range = by_dtype(dtype, clamp_range<float>, clamp_range<BF16>, clamp_range<F16>);
  range(y, x, limit, begin, end);
}
void ClampGradRange(void* dx, const void* dy, const void* x, float limit, DType dtype, int64_t begin,
                    int64_t end) {
  const auto range = by_dtype(dtype, clamp_grad_range<float>, clamp_grad_range<BF16>, clamp_grad_range<F16>);
  range(dx, dy, x, limit, begin, end);
}

}  // namespace strata::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::cpu {

HWY_EXPORT(ClampRange);
HWY_EXPORT(ClampGradRange);

namespace {
constexpr int64_t kChunk = 16384;
}

void clamp_forward(int64_t n, void* y, const void* x, float limit, DType dtype) {
  require_activation_dtype(dtype, "clamp_forward");
  const auto kernel = HWY_DYNAMIC_DISPATCH(ClampRange);
  parallel_ranges(n, kChunk, [&](int64_t begin, int64_t end) { kernel(y, x, limit, dtype, begin, end); });
}

void clamp_backward(int64_t n, void* dx, const void* dy, const void* x, float limit, DType dtype) {
  require_activation_dtype(dtype, "clamp_backward");
  const auto kernel = HWY_DYNAMIC_DISPATCH(ClampGradRange);
  parallel_ranges(n, kChunk,
                  [&](int64_t begin, int64_t end) { kernel(dx, dy, x, limit, dtype, begin, end); });
}

}  // namespace strata::cpu
#endif
