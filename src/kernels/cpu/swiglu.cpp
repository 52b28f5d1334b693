#include "base/parallel.h"
#include "kernels/cpu/activation.h"
#include "kernels/cpu/row_blocks.h"
#include "kernels/cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/swiglu.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h comes first
#include "kernels/cpu/simd-inl.h"
#include "kernels/cpu/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::cpu::HWY_NAMESPACE {

// Of the logistic's argument, so that its exponential stays a normal number.
constexpr float kEdge = 87.0f;

template <typename T>
void forward_rows(int64_t ffn, void* y, const void* gate_up, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const T* const gate = static_cast<const T*>(gate_up) + row * 2 * ffn;
    const T* const up = gate + ffn;
    T* const out = static_cast<T*>(y) + row * ffn;
    for_vectors(ffn, [&](int64_t i, auto span) HWY_ATTR {
      prefetch(gate + i);
      prefetch(up + i);
      const Vector g = load(gate + i, span);
      store(out + i, hn::Mul(logistic_times(g, clamped(g, kEdge)), load(up + i, span)), span);
    });
  }
}

// d silu(g) / dg = s + g s (1 - s).
template <typename T>
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
      const Vector g = load(gate + i, span), u = load(up + i, span), d = load(grad + i, span);
      const Logistic at = logistic(clamped(g, kEdge));
      const Vector silu = hn::Mul(g, at.s);
      store(d_up + i, hn::Mul(d, silu), span);
      store(d_gate + i, hn::Mul(hn::Mul(d, u), hn::MulAdd(silu, at.complement, at.s)), span);
    });
  }
}

void SwigluForward(int64_t ffn, void* y, const void* gate_up, DType dtype, int64_t begin, int64_t end) {
  const auto rows = dtype == DType::kBF16 ? forward_rows<BF16> : forward_rows<float>;
  rows(ffn, y, gate_up, begin, end);
}
void SwigluBackward(int64_t ffn, void* d_gate_up, const void* dy, const void* gate_up, DType dtype,
                    int64_t begin, int64_t end) {
  const auto rows = dtype == DType::kBF16 ? backward_rows<BF16> : backward_rows<float>;
  rows(ffn, d_gate_up, dy, gate_up, begin, end);
}

}  // namespace strata::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::cpu {

HWY_EXPORT(SwigluForward);
HWY_EXPORT(SwigluBackward);

void swiglu_forward(int64_t rows, int64_t ffn, void* y, const void* gate_up, DType dtype) {
  require_activation_dtype(dtype, "swiglu_forward");
  const auto kernel = HWY_DYNAMIC_DISPATCH(SwigluForward);
  parallel_ranges(rows, rows_per_task(ffn),
                  [&](int64_t begin, int64_t end) { kernel(ffn, y, gate_up, dtype, begin, end); });
}

void swiglu_backward(int64_t rows, int64_t ffn, void* d_gate_up, const void* dy, const void* gate_up,
                     DType dtype) {
  require_activation_dtype(dtype, "swiglu_backward");
  const auto kernel = HWY_DYNAMIC_DISPATCH(SwigluBackward);
  parallel_ranges(rows, rows_per_task(ffn), [&](int64_t begin, int64_t end) {
    kernel(ffn, d_gate_up, dy, gate_up, dtype, begin, end);
  });
}

}  // namespace strata::cpu
#endif
