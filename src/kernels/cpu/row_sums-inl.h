// One block of rows summed into a partial row; see row_blocks.h.
#if defined(STRATA_KERNELS_CPU_ROW_SUMS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STRATA_KERNELS_CPU_ROW_SUMS_INL_H_
#undef STRATA_KERNELS_CPU_ROW_SUMS_INL_H_
#else
#define STRATA_KERNELS_CPU_ROW_SUMS_INL_H_
#endif

#include <algorithm>

#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::cpu::HWY_NAMESPACE {

// partial[c] = sum over rows in [begin, end) of what term(row, c, span, sum) adds. Four rows a pass, so that
// the partial row is read and written a quarter as often as the input.
template <typename Term>
HWY_INLINE void sum_rows(float* partial, int64_t begin, int64_t end, int64_t columns, const Term& term) {
  int64_t row = begin;
  for (bool first = true; first || row < end; first = false) {
    const int64_t stop = std::min(end, row + 4);
    const auto pass = [&](int64_t c, auto span) HWY_ATTR {
      Vector sum = first ? zero() : load(partial + c, span);
      if (stop - row == 4) {
        sum = term(row, c, span, sum);
        sum = term(row + 1, c, span, sum);
        sum = term(row + 2, c, span, sum);
        sum = term(row + 3, c, span, sum);
      } else {
        for (int64_t r = row; r < stop; ++r) sum = term(r, c, span, sum);
      }
      store(partial + c, sum, span);
    };
    for_vectors(columns, pass);
    row = stop;
  }
}

}  // namespace strata::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
