// y[rows, n] = x[rows, k] · W[n, k]ᵀ (+ bias) for a handful of rows, as in decoding: the weight is read once
// and as it lies, since packing it would cost more than the product. Internal to the gemm family.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace strata::cpu::detail {

// Each row is computed for itself, in the same order whatever the number of rows.
inline constexpr int64_t kFewRows = 32;

struct FewRows {
  int64_t rows = 0;
  int64_t n = 0;
  int64_t k = 0;
  int64_t x_stride = 0;
  int64_t y_stride = 0;
};

// Scratch for one product with activations of `dtype`.
int64_t few_rows_scratch_bytes(int64_t rows, int64_t k, DType dtype);

void multiply_few_rows(const FewRows& sizes, const float* x, const float* w, const float* bias, float* y,
                       float* scratch);

// The same in bf16, with sums in f32. y is f32 or bf16.
void multiply_few_rows(const FewRows& sizes, const BF16* x, const BF16* w, const float* bias, void* y,
                       DType y_dtype, float* scratch);

}  // namespace strata::cpu::detail
