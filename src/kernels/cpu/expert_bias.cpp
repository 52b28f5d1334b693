#include "kernels/cpu/expert_bias.h"

#include <algorithm>

#include "base/parallel.h"
#include "kernels/cpu/by_dtype.h"
#include "kernels/cpu/row_blocks.h"
#include "tensor/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/expert_bias.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h comes first
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::cpu::HWY_NAMESPACE {

// The first token-expert pair of a token; for token = tokens, the first pair without a token.
int64_t first_slot(const ExpertBiasShape& s, BiasSlots slots, int64_t token) {
  return slots.offsets != nullptr ? slots.offsets[token] : token * (s.slots / std::max<int64_t>(1, s.tokens));
}

// y = x + the bias of one expert, or the weighted biases of several, in one pass over the row.
template <typename T>
void add_rows(const ExpertBiasShape& s, void* y, const void* x, BiasSlots slots, const float* weights,
              const float* bias, int64_t begin, int64_t end) {
  const int64_t used = first_slot(s, slots, s.tokens);
  for (int64_t row = begin; row < end; ++row) {
    const T* const from = static_cast<const T*>(x) + row * s.columns;
    T* const to = static_cast<T*>(y) + row * s.columns;
    const int64_t first = weights != nullptr ? first_slot(s, slots, row) : row;
    const int64_t last = weights != nullptr ? first_slot(s, slots, row + 1) : std::min(row + 1, used);
    for_vectors(s.columns, [&](int64_t i, auto span) HWY_ATTR {
      Vector sum = load(from + i, span);
      for (int64_t slot = first; slot < last; ++slot) {
        if (slots.ids[slot] < 0) continue;
        const Vector b = load(bias + slots.ids[slot] * s.columns + i, span);
        sum = weights != nullptr ? hn::MulAdd(constant(weights[slot]), b, sum) : hn::Add(sum, b);
      }
      store(to + i, sum, span);
    });
  }
}

// The bias gradient of one expert: the sum over its pairs in ascending order.
template <typename T>
void sum_of_expert(const ExpertBiasShape& s, float* d_bias, const void* dy, BiasSlots slots,
                   const float* weights, int64_t expert) {
  float* const sums = d_bias + expert * s.columns;
  if (!s.accumulate) std::fill_n(sums, s.columns, 0.0f);
  for (int64_t token = 0; token < s.tokens; ++token) {
    const int64_t last = first_slot(s, slots, token + 1);
    for (int64_t slot = first_slot(s, slots, token); slot < last; ++slot) {
      if (slots.ids[slot] != expert) continue;
      const Vector weight = constant(weights != nullptr ? weights[slot] : 1.0f);
      const T* const from = static_cast<const T*>(dy) + (weights != nullptr ? token : slot) * s.columns;
      for_vectors(s.columns, [&](int64_t i, auto span) HWY_ATTR {
        store(sums + i, hn::MulAdd(weight, load(from + i, span), load(sums + i, span)), span);
      });
    }
  }
}

template <typename T>
void products_of_rows(const ExpertBiasShape& s, float* d_weights, const void* dy, BiasSlots slots,
                      const float* bias, int64_t begin, int64_t end) {
  for (int64_t token = begin; token < end; ++token) {
    const T* const from = static_cast<const T*>(dy) + token * s.columns;
    const int64_t last = first_slot(s, slots, token + 1);
    for (int64_t slot = first_slot(s, slots, token); slot < last; ++slot) {
      const float* const b = bias + std::max(slots.ids[slot], 0) * s.columns;
      const float product = sum_over(s.columns, [&](int64_t i, auto span, Vector sum) HWY_ATTR {
        return hn::MulAdd(load(from + i, span), load(b + i, span), sum);
      });
      d_weights[slot] = slots.ids[slot] < 0 ? 0 : product;
    }
  }
}

void AddRows(const ExpertBiasShape& s, void* y, const void* x, BiasSlots slots, const float* weights,
             const float* bias, int64_t begin, int64_t end) {
  const auto rows = by_dtype(s.dtype, add_rows<float>, add_rows<BF16>, add_rows<F16>);
  rows(s, y, x, slots, weights, bias, begin, end);
}
void SumOfExpert(const ExpertBiasShape& s, float* d_bias, const void* dy, BiasSlots slots,
                 const float* weights, int64_t expert) {
  const auto sum = by_dtype(s.dtype, sum_of_expert<float>, sum_of_expert<BF16>, sum_of_expert<F16>);
  sum(s, d_bias, dy, slots, weights, expert);
}
void ProductsOfRows(const ExpertBiasShape& s, float* d_weights, const void* dy, BiasSlots slots,
                    const float* bias, int64_t begin, int64_t end) {
  const auto rows = by_dtype(s.dtype, products_of_rows<float>, products_of_rows<BF16>, products_of_rows<F16>);
  rows(s, d_weights, dy, slots, bias, begin, end);
}

}  // namespace strata::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::cpu {

HWY_EXPORT(AddRows);
HWY_EXPORT(SumOfExpert);
HWY_EXPORT(ProductsOfRows);

void add_expert_bias(const ExpertBiasShape& shape, void* y, const void* x, BiasSlots slots,
                     const float* weights, const float* bias) {
  require_activation_dtype(shape.dtype, "add_expert_bias");
  const auto kernel = HWY_DYNAMIC_DISPATCH(AddRows);
  parallel_ranges(weights != nullptr ? shape.tokens : shape.slots, rows_per_task(shape.columns),
                  [&](int64_t begin, int64_t end) { kernel(shape, y, x, slots, weights, bias, begin, end); });
}

void expert_bias_gradient(const ExpertBiasShape& shape, float* d_bias, const void* dy, BiasSlots slots,
                          const float* weights) {
  require_activation_dtype(shape.dtype, "expert_bias_gradient");
  const auto kernel = HWY_DYNAMIC_DISPATCH(SumOfExpert);
  parallel_for(shape.experts, [&](int64_t expert) { kernel(shape, d_bias, dy, slots, weights, expert); });
}

void expert_bias_weights_gradient(const ExpertBiasShape& shape, float* d_weights, const void* dy,
                                  BiasSlots slots, const float* bias) {
  require_activation_dtype(shape.dtype, "expert_bias_weights_gradient");
  const auto kernel = HWY_DYNAMIC_DISPATCH(ProductsOfRows);
  const int64_t of_token = std::max<int64_t>(1, shape.slots / std::max<int64_t>(1, shape.tokens));
  parallel_ranges(shape.tokens, rows_per_task(of_token * shape.columns),
                  [&](int64_t begin, int64_t end) { kernel(shape, d_weights, dy, slots, bias, begin, end); });
  if (slots.offsets != nullptr)
    std::fill(d_weights + slots.offsets[shape.tokens], d_weights + shape.slots, 0.0f);
}

}  // namespace strata::cpu
#endif
