// Sums over rows whose bits do not depend on the number of threads: only the number of rows determines the
// blocks; each block is summed into its own partial row in scratch, and partial rows are added in order.
#pragma once

#include <algorithm>
#include <cstdint>

#include "tensor/dtype.h"

namespace strata::cpu {

struct RowBlocks {
  int64_t rows_per_block, blocks;
};

// At most 256 blocks of at least 32 rows each.
inline RowBlocks row_blocks(int64_t rows) {
  const int64_t per_block = std::max<int64_t>(32, (rows + 255) / 256);
  return {per_block, (rows + per_block - 1) / per_block};
}

inline int64_t row_blocks_scratch_bytes(int64_t rows, int64_t columns) {
  return row_blocks(rows).blocks * columns * int64_t{sizeof(float)};
}

// out[columns] = (accumulate ? out : 0) + partials[0] + … + partials[blocks - 1]; rows have `columns` floats.
void combine_partial_rows(float* out, const float* partials, int64_t blocks, int64_t columns,
                          bool accumulate);

// Rows per task of an element-wise kernel: about 16,384 elements.
inline int64_t rows_per_task(int64_t columns) {
  return std::max<int64_t>(1, 16384 / std::max<int64_t>(1, columns));
}

// Throws InternalError unless dtype is f32, bf16 or fp16.
void require_activation_dtype(DType dtype, const char* kernel);

}  // namespace strata::cpu
