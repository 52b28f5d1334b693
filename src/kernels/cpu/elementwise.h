// Element-wise arithmetic and sums over rows. Arrays have the given dtype (f32, bf16, fp16); arithmetic is f32.
// Outputs may alias inputs of the same dtype.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace strata::cpu {

void add(void* out, const void* a, const void* b, int64_t n, DType dtype);
// out[rows, columns] = x + row, broadcast over the rows.
void add_row(void* out, const void* x, const float* row, int64_t rows, int64_t columns, DType dtype);
// out[rows, columns] = x · row, broadcast over the rows.
void scale_columns(void* out, const void* x, const float* row, int64_t rows, int64_t columns, DType dtype);
void scale(void* out, const void* in, float factor, int64_t n, DType dtype);
// Rounds to nearest even if out_dtype is narrower.
void cast(void* out, DType out_dtype, const void* in, DType in_dtype, int64_t n);
void fill_zero(void* out, int64_t bytes);

// out[columns] = (accumulate ? out : 0) + sum over rows of in[row * row_stride + column]: the gradient of a
// bias. The bits do not depend on the number of threads. scratch is uninitialised.
int64_t column_sums_scratch_bytes(int64_t rows, int64_t columns);
void column_sums(int64_t rows, int64_t columns, int64_t row_stride, float* out, const void* in, DType dtype,
                 bool accumulate, void* scratch);

}  // namespace strata::cpu
