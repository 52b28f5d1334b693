// Inner kernels of bf16 GEMMs with fp32 sums: pack operands into panels in VNNI layout and multiply two
// packed blocks by VDPBF16PS (or its model, bf16_dot.h). Counterpart of gemm_block.h for processors with bf16
// dot products.
//
// C[rows, cols] (+)= A[rows, depth] · B[depth, cols]. A pair is two adjacent depths. A is packed in panels of
// `mr` rows, laid out [panel][pair][mr][2]; B in panels of `nr` columns, laid out [panel][pair][nr][2]. Both
// are zero-padded, also to an even depth. A panel of depth d has panel_values(d, width) values. Each element
// is summed over the pairs in order.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/gemm_block.h"
#include "tensor/dtype.h"

namespace strata::cpu::detail {

// 24 accumulators of 32 registers: 10 loads for 24 dot products.
inline constexpr PanelShape kPairPanels{6, 64};

// Number of values of a panel.
constexpr int64_t panel_values(int64_t depth, int64_t width) {
  return (depth + 1) / 2 * 2 * width;
}

// Packs `count` rows (or columns) from `begin` on, depths [depth_begin, depth_begin + depth). Rounds fp32
// values to the nearest bf16.
void pack_pairs(BF16* dst, int64_t panel, const OperandView& view, int64_t begin, int64_t count,
                int64_t depth_begin, int64_t depth);

// Packs `count` columns, of contiguous depth, of one panel; `dst` points to the first of them in the panel.
// Leaves other columns, and the second half of an odd last pair, unchanged.
void pack_pairs_within(BF16* dst, int64_t panel, const float* columns, int64_t stride, int64_t count,
                       int64_t depth);

// Like pack_pairs, for a depth-major bf16 operand whose depth p is in row depths[p].
void pack_pairs_listed(BF16* dst, int64_t panel, const OperandView& view, const int32_t* depths,
                       int64_t begin, int64_t count, int64_t depth);

// Panel strides are values between panels: `depth` may be only part of the depth of the packed block. `next`:
// first panel of the next call, to prefetch; may be null.
void multiply_pairs(const BlockOutput& out, const BF16* a, int64_t a_panel_stride, const BF16* b,
                    int64_t b_panel_stride, int64_t rows, int64_t cols, int64_t depth,
                    const BF16* next = nullptr);

// multiply_block_scaled() on these panels.
void multiply_pairs_scaled(const BlockOutput& out, const int32_t* out_rows, const SumScales& scales,
                           const BF16* a, int64_t a_panel_stride, const BF16* b, int64_t b_panel_stride,
                           int64_t rows, int64_t cols, int64_t depth, const BF16* next = nullptr);

// Rows of memory, `stride` bytes apart, to prefetch into the L2 cache.
struct RowsAhead {
  const std::byte* from = nullptr;
  int64_t rows = 0, bytes = 0, stride = 0;
};

// Like multiply_pairs(), with unpacked A of contiguous, even depth: row i is row a_rows[i] of A, at a +
// a_rows[i] * a_stride, and row out_rows[i] of C. Two rows must not share a row of C. A null list stands for
// row i itself. Prefetches `next` meanwhile.
void multiply_pairs_listed(const BlockOutput& out, const int32_t* out_rows, const BF16* a, int64_t a_stride,
                           const int32_t* a_rows, const BF16* b, int64_t b_panel_stride, int64_t rows,
                           int64_t cols, int64_t depth, const RowsAhead& next = {});

}  // namespace strata::cpu::detail
