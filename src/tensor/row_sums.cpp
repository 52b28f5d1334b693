#include "tensor/row_sums.h"

#include "tensor/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/row_sums.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h comes first
#include "tensor/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::simd::HWY_NAMESPACE {

template <typename T>
void SumRows(T* HWY_RESTRICT to, const T* const* rows, size_t count, int64_t width) {
  // Most tokens have experts on two ranks or more.
  if (count == 2) {
    const T *const a = rows[0], *const b = rows[1];
    return for_vectors(width, [&](int64_t i, auto span) HWY_ATTR {
      store(to + i, hn::Add(load(a + i, span), load(b + i, span)), span);
    });
  }
  for_vectors(width, [&](int64_t i, auto span) HWY_ATTR {
    Vector sum = zero();
    for (size_t r = 0; r < count; ++r) sum = hn::Add(sum, load(rows[r] + i, span));
    store(to + i, sum, span);
  });
}
void SumFloats(float* to, const float* const* rows, size_t count, int64_t width) {
  SumRows(to, rows, count, width);
}
void SumHalves(BF16* to, const BF16* const* rows, size_t count, int64_t width) {
  SumRows(to, rows, count, width);
}

void SumF16(F16* to, const F16* const* rows, size_t count, int64_t width) {
  SumRows(to, rows, count, width);
}

}  // namespace strata::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata {
namespace simd {

HWY_EXPORT(SumFloats);
HWY_EXPORT(SumHalves);
HWY_EXPORT(SumF16);

}  // namespace simd

void sum_rows(float* to, std::span<const float* const> rows, int64_t width) {
  using namespace simd;
  HWY_DYNAMIC_DISPATCH(SumFloats)(to, rows.data(), rows.size(), width);
}

void sum_rows(BF16* to, std::span<const BF16* const> rows, int64_t width) {
  using namespace simd;
  HWY_DYNAMIC_DISPATCH(SumHalves)(to, rows.data(), rows.size(), width);
}

void sum_rows(F16* to, std::span<const F16* const> rows, int64_t width) {
  using namespace simd;
  HWY_DYNAMIC_DISPATCH(SumF16)(to, rows.data(), rows.size(), width);
}

}  // namespace strata
#endif
