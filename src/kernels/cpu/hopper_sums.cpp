#include "kernels/cpu/hopper_sums.h"

#include <algorithm>
#include <cmath>

#include "tensor/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/hopper_sums.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h comes first
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::cpu::HWY_NAMESPACE {

constexpr int64_t kAtOnce = 32;   // depths of one instruction
constexpr int kSignificant = 14;  // bits that alignment keeps

using Ints = hn::RebindToSigned<F32>;
using IntVector = hn::Vec<Ints>;

HWY_INLINE IntVector magnitude(Vector v) {
  return hn::And(hn::BitCast(Ints(), v), hn::Set(Ints(), 0x7fffffff));
}

// One instruction: `sums` and terms a[d] · b[d], where a's depths are kHopperPanels.mr apart and b's
// kHopperPanels.nr.
HWY_INLINE Vector add_terms(Vector sums, const float* a, const float* b, int64_t depth) {
  const Ints d;
  Vector terms[kAtOnce];
  IntVector most = magnitude(sums);
  Vector unaligned = sums;  // the result of infinite terms and NaN
  for (int64_t p = 0; p < depth; ++p) {
    terms[p] = hn::Mul(constant(a[p * detail::kHopperPanels.mr]),
                       hn::LoadU(F32(), b + p * detail::kHopperPanels.nr));
    most = hn::Max(most, magnitude(terms[p]));
    unaligned = hn::Add(unaligned, terms[p]);
  }
  // The last of the bits that are kept is a quantum. The bounds keep it and its inverse normal numbers.
  const IntVector largest =
      hn::Max(hn::Min(hn::ShiftRight<23>(most), hn::Set(d, 254)), hn::Set(d, kSignificant));
  const IntVector exponent = hn::Sub(largest, hn::Set(d, kSignificant - 1));
  const Vector quantum = hn::BitCast(F32(), hn::ShiftLeft<23>(exponent));
  const Vector to_quanta = hn::BitCast(F32(), hn::ShiftLeft<23>(hn::Sub(hn::Set(d, 254), exponent)));
  IntVector quanta = hn::ConvertTo(d, hn::Mul(sums, to_quanta));  // towards zero
  for (int64_t p = 0; p < depth; ++p)
    quanta = hn::Add(quanta, hn::ConvertTo(d, hn::Mul(terms[p], to_quanta)));
  const auto finite = hn::RebindMask(F32(), hn::Lt(most, hn::Set(d, 0x7f800000)));
  return hn::IfThenElse(finite, hn::Mul(hn::ConvertTo(F32(), quanta), quantum), unaligned);
}

void MultiplyHopper(const detail::BlockOutput& out, const detail::SumScales& scales, const float* a,
                    int64_t a_panel_stride, const float* b, int64_t b_panel_stride, int64_t rows,
                    int64_t cols, int64_t depth) {
  constexpr int64_t mr = detail::kHopperPanels.mr, nr = detail::kHopperPanels.nr;
  const int64_t step = std::min(nr, lanes());
  for (int64_t j = 0; j < cols; j += step) {
    const float* const of_cols = b + j / nr * b_panel_stride + j % nr;
    for (int64_t row = 0; row < rows; ++row) {
      const float* const of_row = a + row / mr * a_panel_stride + row % mr;
      Vector sums = hn::Zero(F32());
      for (int64_t deep = 0; deep < depth; deep += kAtOnce)
        sums = add_terms(sums, of_row + deep * mr, of_cols + deep * nr, std::min(kAtOnce, depth - deep));
      HWY_ALIGN float all[HWY_LANES(float)];
      hn::Store(sums, F32(), all);
      float* const to = out.data + row * out.stride + j;
      for (int64_t i = 0; i < std::min(step, cols - j); ++i) {
        const float before = out.accumulate ? to[i] : out.bias != nullptr ? out.bias[j + i] : 0.0f;
        // Explicitly fused, as some targets' compilers would fuse it.
        to[i] = std::fma(all[i], scales.rows[row] * scales.cols[j + i], before);
      }
    }
  }
}

}  // namespace strata::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::cpu::detail {

HWY_EXPORT(MultiplyHopper);

void multiply_hopper(const BlockOutput& out, const SumScales& scales, const float* a, int64_t a_panel_stride,
                     const float* b, int64_t b_panel_stride, int64_t rows, int64_t cols, int64_t depth,
                     const float*) {
  HWY_DYNAMIC_DISPATCH(MultiplyHopper)
  (out, scales, a, a_panel_stride, b, b_panel_stride, rows, cols, depth);
}

}  // namespace strata::cpu::detail
#endif
