#include "base/parallel.h"
#include "kernels/cpu/by_dtype.h"
#include "kernels/cpu/clamp.h"
#include "kernels/cpu/row_blocks.h"
#include "tensor/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/clamped_gated.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h comes first
#include "kernels/cpu/activations-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::cpu::HWY_NAMESPACE {

// g sigmoid(a g) = silu(a g) / a. The operand order of Min and Max propagates NaN on x86.
template <typename T>
void clamped_rows(const ClampedGate& s, void* y, const void* gate_up, int64_t begin, int64_t end) {
  const Vector alpha = constant(s.alpha), inverse = constant(1.0f / s.alpha), one = constant(1.0f);
  const Vector most = constant(s.limit), least = constant(-s.limit);
  for (int64_t row = begin; row < end; ++row) {
    const T* const gate = static_cast<const T*>(gate_up) + row * 2 * s.ffn;
    const T* const up = gate + s.ffn;
    T* const out = static_cast<T*>(y) + row * s.ffn;
    for_vectors(s.ffn, [&](int64_t i, auto span) HWY_ATTR {
      const Vector g = hn::Min(most, load(gate + i, span));
      const Vector u = hn::Max(least, hn::Min(most, load(up + i, span)));
      const Vector bent = hn::Mul(Silu::value(hn::Mul(alpha, g)), inverse);
      store(out + i, hn::Mul(hn::Add(u, one), bent), span);
    });
  }
}

template <typename T>
void clamped_grad_rows(const ClampedGate& s, void* d_gate_up, const void* dy, const void* gate_up,
                       int64_t begin, int64_t end) {
  const Vector alpha = constant(s.alpha), inverse = constant(1.0f / s.alpha), one = constant(1.0f);
  const Vector most = constant(s.limit), least = constant(-s.limit);
  for (int64_t row = begin; row < end; ++row) {
    const T* const gate = static_cast<const T*>(gate_up) + row * 2 * s.ffn;
    const T* const up = gate + s.ffn;
    const T* const grad = static_cast<const T*>(dy) + row * s.ffn;
    T* const d_gate = static_cast<T*>(d_gate_up) + row * 2 * s.ffn;
    T* const d_up = d_gate + s.ffn;
    for_vectors(s.ffn, [&](int64_t i, auto span) HWY_ATTR {
      const Vector gate_in = load(gate + i, span), up_in = load(up + i, span), d = load(grad + i, span);
      const Vector u = hn::Max(least, hn::Min(most, up_in));
      const ValueAndSlope at = Silu::both(hn::Mul(alpha, hn::Min(most, gate_in)));
      const Vector of_up = hn::Mul(d, hn::Mul(at.value, inverse));
      const Vector of_gate = hn::Mul(hn::Mul(d, hn::Add(u, one)), at.slope);
      store(d_up + i, hn::IfThenZeroElse(hn::Gt(hn::Abs(up_in), most), of_up), span);
      store(d_gate + i, hn::IfThenZeroElse(hn::Gt(gate_in, most), of_gate), span);
    });
  }
}

void ClampedForward(const ClampedGate& s, void* y, const void* gate_up, int64_t begin, int64_t end) {
  const auto rows = by_dtype(s.dtype, clamped_rows<float>, clamped_rows<BF16>, clamped_rows<F16>);
  rows(s, y, gate_up, begin, end);
}
void ClampedBackward(const ClampedGate& s, void* d_gate_up, const void* dy, const void* gate_up,
                     int64_t begin, int64_t end) {
  const auto rows =
      by_dtype(s.dtype, clamped_grad_rows<float>, clamped_grad_rows<BF16>, clamped_grad_rows<F16>);
  rows(s, d_gate_up, dy, gate_up, begin, end);
}

}  // namespace strata::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::cpu {

HWY_EXPORT(ClampedForward);
HWY_EXPORT(ClampedBackward);

void clamped_gated_forward(const ClampedGate& shape, void* y, const void* gate_up) {
  require_activation_dtype(shape.dtype, "clamped_gated_forward");
  const auto kernel = HWY_DYNAMIC_DISPATCH(ClampedForward);
  parallel_ranges(shape.rows, rows_per_task(shape.ffn),
                  [&](int64_t begin, int64_t end) { kernel(shape, y, gate_up, begin, end); });
}

void clamped_gated_backward(const ClampedGate& shape, void* d_gate_up, const void* dy, const void* gate_up) {
  require_activation_dtype(shape.dtype, "clamped_gated_backward");
  const auto kernel = HWY_DYNAMIC_DISPATCH(ClampedBackward);
  parallel_ranges(shape.rows, rows_per_task(shape.ffn),
                  [&](int64_t begin, int64_t end) { kernel(shape, d_gate_up, dy, gate_up, begin, end); });
}

}  // namespace strata::cpu
#endif
