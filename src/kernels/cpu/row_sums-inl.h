// Sums one block of rows into a partial row; see row_blocks.h.
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

// partial[c] = sum over rows in [begin, end) of what term(row, c, span, sum) adds. Two rows per pass: more
// would access `partial` less often, but rows of 4 KiB then evict each other from the first-level cache.
template <typename Term>
HWY_INLINE void sum_rows(float* partial, int64_t begin, int64_t end, int64_t columns, const Term& term) {
  for_vectors(columns, [&](int64_t c, auto span) HWY_ATTR { store(partial + c, zero(), span); });
  int64_t row = begin;
  for (; row + 2 <= end; row += 2) {
    for_vectors(columns, [&](int64_t c, auto span) HWY_ATTR {
      const Vector sum = term(row, c, span, load(partial + c, span));
      store(partial + c, term(row + 1, c, span, sum), span);
    });
  }
  if (row < end) {
    for_vectors(columns, [&](int64_t c, auto span) HWY_ATTR {
      store(partial + c, term(row, c, span, load(partial + c, span)), span);
    });
  }
}

}  // namespace strata::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
