// Skinny GEMM, y[rows, n] = x[rows, k] · W[n, k]ᵀ (+ bias) for a handful of rows, as in decoding. Reads the
// weight once and unpacked, since packing it would cost more than the GEMM. Internal to the gemm family.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace strata::cpu::detail {

// Most rows for which plan_gemm chooses this kernel. Each row is computed independently, in the same order
// for any number of rows.
inline constexpr int64_t kSkinnyRows = 32;

struct SkinnyShape {
  int64_t rows = 0;
  int64_t n = 0;
  int64_t k = 0;
  int64_t x_stride = 0;
  int64_t y_stride = 0;
};

// Scratch of one call with activations of `dtype`.
int64_t skinny_scratch_bytes(int64_t rows, int64_t k, DType dtype);

void multiply_skinny(const SkinnyShape& sizes, const float* x, const float* w, const float* bias, float* y,
                     float* scratch);

// bf16 operands, fp32 sums. y is f32 or bf16.
void multiply_skinny(const SkinnyShape& sizes, const BF16* x, const BF16* w, const float* bias, void* y,
                     DType y_dtype, float* scratch);

}  // namespace strata::cpu::detail
