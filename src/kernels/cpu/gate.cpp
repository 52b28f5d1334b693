#include "kernels/cpu/gate.h"

#include "base/parallel.h"
#include "kernels/cpu/by_dtype.h"
#include "kernels/cpu/row_blocks.h"
#include "tensor/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/gate.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h comes first
#include "kernels/cpu/gate_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::cpu::HWY_NAMESPACE {

template <typename Function, typename T>
void gate_range(void* y, const void* x, const void* gate, int64_t begin, int64_t end) {
  const T* const from = static_cast<const T*>(x) + begin;
  const T* const by = static_cast<const T*>(gate) + begin;
  T* const to = static_cast<T*>(y) + begin;
  for_vectors(end - begin, [&](int64_t i, auto span) HWY_ATTR {
    prefetch(from + i);
    prefetch(by + i);
    store(to + i, hn::Mul(load(from + i, span), Function::value(load(by + i, span))), span);
  });
}

template <typename Function, typename T>
void gate_grad_range(void* dx, void* dgate, const void* dy, const void* x, const void* gate, int64_t begin,
                     int64_t end) {
  const T* const from = static_cast<const T*>(x) + begin;
  const T* const by = static_cast<const T*>(gate) + begin;
  const T* const grad = static_cast<const T*>(dy) + begin;
  T* const to = static_cast<T*>(dx) + begin;
  T* const to_gate = static_cast<T*>(dgate) + begin;
  for_vectors(end - begin, [&](int64_t i, auto span) HWY_ATTR {
    prefetch(from + i);
    prefetch(by + i);
    prefetch(grad + i);
    const Vector value = load(from + i, span), d = load(grad + i, span);
    const ValueAndSlope at = Function::both(load(by + i, span));
    store(to + i, hn::Mul(d, at.value), span);
    store(to_gate + i, hn::Mul(hn::Mul(d, value), at.slope), span);
  });
}

void GateRange(GateKind kind, void* y, const void* x, const void* gate, DType dtype, int64_t begin,
               int64_t end) {
  with_gate(kind, [&](auto function) {
    using F = decltype(function);
    const auto range = by_dtype(dtype, gate_range<F, float>, gate_range<F, BF16>, gate_range<F, F16>);
    range(y, x, gate, begin, end);
  });
}
void GateGradRange(GateKind kind, void* dx, void* dgate, const void* dy, const void* x, const void* gate,
                   DType dtype, int64_t begin, int64_t end) {
  with_gate(kind, [&](auto function) {
    using F = decltype(function);
    const auto range =
        by_dtype(dtype, gate_grad_range<F, float>, gate_grad_range<F, BF16>, gate_grad_range<F, F16>);
    range(dx, dgate, dy, x, gate, begin, end);
  });
}

}  // namespace strata::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::cpu {

HWY_EXPORT(GateRange);
HWY_EXPORT(GateGradRange);

namespace {
constexpr int64_t kChunk = 16384;
}

void gate_forward(GateKind kind, int64_t n, void* y, const void* x, const void* gate, DType dtype) {
  require_activation_dtype(dtype, "gate_forward");
  const auto kernel = HWY_DYNAMIC_DISPATCH(GateRange);
  parallel_ranges(n, kChunk,
                  [&](int64_t begin, int64_t end) { kernel(kind, y, x, gate, dtype, begin, end); });
}

void gate_backward(GateKind kind, int64_t n, void* dx, void* dgate, const void* dy, const void* x,
                   const void* gate, DType dtype) {
  require_activation_dtype(dtype, "gate_backward");
  const auto kernel = HWY_DYNAMIC_DISPATCH(GateGradRange);
  parallel_ranges(n, kChunk, [&](int64_t begin, int64_t end) {
    kernel(kind, dx, dgate, dy, x, gate, dtype, begin, end);
  });
}

}  // namespace strata::cpu
#endif
