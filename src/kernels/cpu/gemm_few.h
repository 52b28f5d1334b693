// y[rows, n] = x[rows, k] · W[n, k]ᵀ (+ bias) for a handful of rows, as in decoding: the weight is read once
// and as it lies, since packing it would cost more than the product. Internal to the gemm family.
#pragma once

#include <cstdint>

namespace strata::cpu::detail {

inline constexpr int64_t kFewRows = 8;

struct FewRows {
  int64_t rows = 0;
  int64_t n = 0;
  int64_t k = 0;
  int64_t x_stride = 0;
  int64_t y_stride = 0;
};

void multiply_few_rows(const FewRows& sizes, const float* x, const float* w, const float* bias, float* y);

}  // namespace strata::cpu::detail
