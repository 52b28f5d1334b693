#include "kernels/cpu/activation.h"

#include "base/parallel.h"
#include "kernels/cpu/by_dtype.h"
#include "kernels/cpu/row_blocks.h"
#include "tensor/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/activation.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h comes first
#include "kernels/cpu/activations-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::cpu::HWY_NAMESPACE {

template <typename Function, typename T>
void forward_range(void* y, const void* x, int64_t begin, int64_t end) {
  const T* const in = static_cast<const T*>(x) + begin;
  T* const out = static_cast<T*>(y) + begin;
  for_vectors(end - begin, [&](int64_t i, auto span) HWY_ATTR {
    prefetch(in + i);
    store(out + i, Function::value(load(in + i, span)), span);
  });
}

template <typename Function, typename T>
void backward_range(void* dx, const void* dy, const void* x, int64_t begin, int64_t end) {
  const T* const in = static_cast<const T*>(x) + begin;
  const T* const grad = static_cast<const T*>(dy) + begin;
  T* const out = static_cast<T*>(dx) + begin;
  for_vectors(end - begin, [&](int64_t i, auto span) HWY_ATTR {
    prefetch(in + i);
    prefetch(grad + i);
    store(out + i, hn::Mul(load(grad + i, span), Function::both(load(in + i, span)).slope), span);
  });
}

void ActivationForward(ActivationKind kind, void* y, const void* x, DType dtype, int64_t begin, int64_t end) {
  with_activation(kind, [&](auto function) {
    using F = decltype(function);
    const auto range =
        by_dtype(dtype, forward_range<F, float>, forward_range<F, BF16>, forward_range<F, F16>);
    range(y, x, begin, end);
  });
}
void ActivationBackward(ActivationKind kind, void* dx, const void* dy, const void* x, DType dtype,
                        int64_t begin, int64_t end) {
  with_activation(kind, [&](auto function) {
    using F = decltype(function);
    const auto range =
        by_dtype(dtype, backward_range<F, float>, backward_range<F, BF16>, backward_range<F, F16>);
    range(dx, dy, x, begin, end);
  });
}

}  // namespace strata::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::cpu {

HWY_EXPORT(ActivationForward);
HWY_EXPORT(ActivationBackward);

namespace {
constexpr int64_t kChunk = 16384;
}

void activation_forward(ActivationKind kind, int64_t n, void* y, const void* x, DType dtype) {
  require_activation_dtype(dtype, "activation_forward");
  const auto kernel = HWY_DYNAMIC_DISPATCH(ActivationForward);
  parallel_ranges(n, kChunk, [&](int64_t begin, int64_t end) { kernel(kind, y, x, dtype, begin, end); });
}

void activation_backward(ActivationKind kind, int64_t n, void* dx, const void* dy, const void* x,
                         DType dtype) {
  require_activation_dtype(dtype, "activation_backward");
  const auto kernel = HWY_DYNAMIC_DISPATCH(ActivationBackward);
  parallel_ranges(n, kChunk, [&](int64_t begin, int64_t end) { kernel(kind, dx, dy, x, dtype, begin, end); });
}

}  // namespace strata::cpu
#endif
