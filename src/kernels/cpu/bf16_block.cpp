#include "kernels/cpu/bf16_block.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "kernels/cpu/listed_rows.h"

#define STRATA_BF16_INCLUDE "kernels/cpu/bf16_block-inl.h"
#include "kernels/cpu/for_each_bf16_target.h"

namespace strata::cpu::detail {

void multiply_pairs(const BlockOutput& out, const BF16* a, int64_t a_panel_stride, const BF16* b,
                    int64_t b_panel_stride, int64_t rows, int64_t cols, int64_t depth, const BF16* next) {
  STRATA_BF16_CALL(MultiplyPacked)(out, a, a_panel_stride, b, b_panel_stride, rows, cols, depth, next);
}

void multiply_pairs_scaled(const BlockOutput& out, const int32_t* out_rows, const SumScales& scales,
                           const BF16* a, int64_t a_panel_stride, const BF16* b, int64_t b_panel_stride,
                           int64_t rows, int64_t cols, int64_t depth, const BF16* next) {
  STRATA_BF16_CALL(MultiplyScaled)
  (out, out_rows, scales, a, a_panel_stride, b, b_panel_stride, rows, cols, depth, next);
}

void multiply_pairs_listed(const BlockOutput& out, const int32_t* out_rows, const BF16* a, int64_t a_stride,
                           const int32_t* a_rows, const BF16* b, int64_t b_panel_stride, int64_t rows,
                           int64_t cols, int64_t depth, const RowsAhead& next) {
  STRATA_CHECK(depth % 2 == 0, "[gemm] rows for bf16 dot products have depth {}: expected an even one",
               depth);
  STRATA_BF16_CALL(MultiplyListed)
  (out, out_rows, a, a_stride, a_rows, b, b_panel_stride, rows, cols, depth, next);
}

}  // namespace strata::cpu::detail
