#include "kernels/cpu/expert_rows.h"

#include <algorithm>

#include "base/error.h"
#include "base/parallel.h"
#include "kernels/cpu/by_dtype.h"
#include "tensor/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/expert_rows.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h comes first
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::cpu::HWY_NAMESPACE {

template <typename T>
void GatherTyped(float* to, const void* data, int64_t stride, const int32_t* rows, int64_t count,
                 int64_t width) {
  const T* const from = static_cast<const T*>(data);
  for (int64_t i = 0; i < count; ++i) {
    const T* const row = from + rows[i] * stride;
    float* const out = to + i * width;
    for_vectors(width, [&](int64_t c, auto span) HWY_ATTR { store(out + c, load(row + c, span), span); });
  }
}

void GatherRows(float* to, DType dtype, const void* from, int64_t stride, const int32_t* rows, int64_t count,
                int64_t width) {
  by_dtype(dtype, GatherTyped<float>, GatherTyped<BF16>, GatherTyped<F16>)(to, from, stride, rows, count,
                                                                           width);
}

template <typename T>
void ScatterTyped(void* data, int64_t stride, const int32_t* rows, const float* from, int64_t from_stride,
                  int64_t count, int64_t width) {
  T* const to = static_cast<T*>(data);
  for (int64_t i = 0; i < count; ++i) {
    const float* const row = from + i * from_stride;
    T* const out = to + (rows != nullptr ? rows[i] : i) * stride;
    for_vectors(width, [&](int64_t c, auto span) HWY_ATTR { store(out + c, load(row + c, span), span); });
  }
}

void ScatterRows(DType dtype, void* to, int64_t stride, const int32_t* rows, const float* from,
                 int64_t from_stride, int64_t count, int64_t width) {
  by_dtype(dtype, ScatterTyped<float>, ScatterTyped<BF16>, ScatterTyped<F16>)(to, stride, rows, from,
                                                                              from_stride, count, width);
}

}  // namespace strata::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::cpu::detail {

HWY_EXPORT(GatherRows);
HWY_EXPORT(ScatterRows);

void gather_rows(float* to, DType dtype, const void* from, int64_t stride, const int32_t* rows, int64_t count,
                 int64_t width) {
  HWY_DYNAMIC_DISPATCH(GatherRows)(to, dtype, from, stride, rows, count, width);
}

void scatter_rows(DType dtype, void* to, int64_t stride, const int32_t* rows, const float* from,
                  int64_t from_stride, int64_t count, int64_t width) {
  HWY_DYNAMIC_DISPATCH(ScatterRows)(dtype, to, stride, rows, from, from_stride, count, width);
}

void order_by_expert(const ExpertOrder& order, const int32_t* ids) {
  parallel_ranges(order.tokens, order.chunk_tokens, [&](int64_t first, int64_t last) {
    const int64_t begin = order.first_slot(first), end = order.first_slot(last);
    int32_t* const begins = order.begins + first / order.chunk_tokens * (order.experts + 1);
    std::fill_n(begins, order.experts + 1, 0);
    for (int64_t slot = begin; slot < end; ++slot) {
      STRATA_CHECK(ids[slot] >= -1 && ids[slot] < order.experts,
                   "[experts] token-expert pair {} has expert {}: expected [0, {}) or -1", slot, ids[slot],
                   order.experts);
      if (ids[slot] >= 0) ++begins[ids[slot]];
    }
    // The end of each expert's pairs; filling backwards turns it into their begin.
    auto sum = static_cast<int32_t>(begin);
    for (int64_t e = 0; e < order.experts; ++e) begins[e] = sum += begins[e];
    begins[order.experts] = sum;
    for (int64_t token = last - 1; token >= first; --token) {
      for (int64_t slot = order.first_slot(token + 1) - 1; slot >= order.first_slot(token); --slot) {
        if (ids[slot] < 0) continue;
        const int32_t at = --begins[ids[slot]];
        order.slots[at] = static_cast<int32_t>(slot);
        order.token_of[at] = static_cast<int32_t>(token - first);
      }
    }
  });
}

}  // namespace strata::cpu::detail
#endif
