#include "base/parallel.h"
#include "kernels/cpu/activation.h"
#include "kernels/cpu/by_dtype.h"
#include "kernels/cpu/row_blocks.h"
#include "tensor/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/gated.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h comes first
#include "kernels/cpu/activations-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::cpu::HWY_NAMESPACE {

template <typename Function, typename T>
void forward_rows(int64_t ffn, void* y, const void* gate_up, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const T* const gate = static_cast<const T*>(gate_up) + row * 2 * ffn;
    const T* const up = gate + ffn;
    T* const out = static_cast<T*>(y) + row * ffn;
    for_vectors(ffn, [&](int64_t i, auto span) HWY_ATTR {
      prefetch(gate + i);
      prefetch(up + i);
      store(out + i, hn::Mul(Function::value(load(gate + i, span)), load(up + i, span)), span);
    });
  }
}

template <typename Function, typename T>
void backward_rows(int64_t ffn, void* d_gate_up, const void* dy, const void* gate_up, int64_t begin,
                   int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const T* const gate = static_cast<const T*>(gate_up) + row * 2 * ffn;
    const T* const up = gate + ffn;
    const T* const grad = static_cast<const T*>(dy) + row * ffn;
    T* const d_gate = static_cast<T*>(d_gate_up) + row * 2 * ffn;
    T* const d_up = d_gate + ffn;
    for_vectors(ffn, [&](int64_t i, auto span) HWY_ATTR {
      prefetch(gate + i);
      prefetch(up + i);
      prefetch(grad + i);
      const Vector u = load(up + i, span), d = load(grad + i, span);
      const ValueAndSlope at = Function::both(load(gate + i, span));
      store(d_up + i, hn::Mul(d, at.value), span);
      store(d_gate + i, hn::Mul(hn::Mul(d, u), at.slope), span);
    });
  }
}

void GatedForward(ActivationKind kind, int64_t ffn, void* y, const void* gate_up, DType dtype, int64_t begin,
                  int64_t end) {
  with_activation(kind, [&](auto function) {
    using F = decltype(function);
    const auto rows = by_dtype(dtype, forward_rows<F, float>, forward_rows<F, BF16>, forward_rows<F, F16>);
    rows(ffn, y, gate_up, begin, end);
  });
}
void GatedBackward(ActivationKind kind, int64_t ffn, void* d_gate_up, const void* dy, const void* gate_up,
                   DType dtype, int64_t begin, int64_t end) {
  with_activation(kind, [&](auto function) {
    using F = decltype(function);
    const auto rows = by_dtype(dtype, backward_rows<F, float>, backward_rows<F, BF16>, backward_rows<F, F16>);
    rows(ffn, d_gate_up, dy, gate_up, begin, end);
  });
}

}  // namespace strata::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::cpu {

HWY_EXPORT(GatedForward);
HWY_EXPORT(GatedBackward);

void gated_forward(ActivationKind kind, int64_t rows, int64_t ffn, void* y, const void* gate_up,
                   DType dtype) {
  require_activation_dtype(dtype, "gated_forward");
  const auto kernel = HWY_DYNAMIC_DISPATCH(GatedForward);
  parallel_ranges(rows, rows_per_task(ffn),
                  [&](int64_t begin, int64_t end) { kernel(kind, ffn, y, gate_up, dtype, begin, end); });
}

void gated_backward(ActivationKind kind, int64_t rows, int64_t ffn, void* d_gate_up, const void* dy,
                    const void* gate_up, DType dtype) {
  require_activation_dtype(dtype, "gated_backward");
  const auto kernel = HWY_DYNAMIC_DISPATCH(GatedBackward);
  parallel_ranges(rows, rows_per_task(ffn), [&](int64_t begin, int64_t end) {
    kernel(kind, ffn, d_gate_up, dy, gate_up, dtype, begin, end);
  });
}

}  // namespace strata::cpu
#endif
