// The inner part of products of bf16 operands with fp32 sums: packing into panels of pairs, and the product
// of two blocks by VDPBF16PS (or the model of it, bf16_dot.h). The counterpart of gemm_block.h for such
// processors.
//
// C[rows, cols] (+)= A[rows, depth] · B[depth, cols]. A pair is two neighbouring depths. A is packed in
// panels of `mr` rows, laid out [panel][pair][mr][2]; B in panels of `nr` columns, laid out
// [panel][pair][nr][2]; both zero-padded, an odd depth too. A panel of depth d has panel_values(d, width)
// values. An element's sum goes over the pairs in their order.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/gemm_block.h"
#include "tensor/dtype.h"

namespace strata::cpu::detail {

// 24 accumulators of 32 registers, whose operands are 10 loads for 24 products.
inline constexpr PanelShape kPairPanels{6, 64};

// Values of a panel.
constexpr int64_t panel_values(int64_t depth, int64_t width) {
  return (depth + 1) / 2 * 2 * width;
}

// Packs `count` rows (or columns) starting at `begin`, depths [depth_begin, depth_begin + depth). fp32 values
// are rounded to the nearest bf16.
void pack_pairs(BF16* dst, int64_t panel, const OperandView& view, int64_t begin, int64_t count,
                int64_t depth_begin, int64_t depth);

// Of `count` columns of one panel, whose depth is contiguous: `dst` is where the first of them begins in it.
// What belongs to other columns, or to the other half of a last pair, is left as it is.
void pack_pairs_within(BF16* dst, int64_t panel, const float* columns, int64_t stride, int64_t count,
                       int64_t depth);

// The same as pack_pairs of a depth-major bf16 operand whose depth p lies in row depths[p].
void pack_pairs_listed(BF16* dst, int64_t panel, const OperandView& view, const int32_t* depths,
                       int64_t begin, int64_t count, int64_t depth);

// Panel strides are values between panels: `depth` may be a part of a deeper packed block. `next`: the panel
// that the next call begins with, to be asked for ahead; may be null.
void multiply_pairs(const BlockOutput& out, const BF16* a, int64_t a_panel_stride, const BF16* b,
                    int64_t b_panel_stride, int64_t rows, int64_t cols, int64_t depth,
                    const BF16* next = nullptr);

// Rows of memory, `stride` bytes apart, that are asked for into the L2 cache.
struct RowsAhead {
  const std::byte* from = nullptr;
  int64_t rows = 0, bytes = 0, stride = 0;
};

// The same with A unpacked, depth contiguous and even: row i of the product is row a_rows[i] of A, at
// a + a_rows[i] * a_stride, and row out_rows[i] of C, which no two may share; null: row i itself. `next` is
// asked for meanwhile.
void multiply_pairs_listed(const BlockOutput& out, const int32_t* out_rows, const BF16* a, int64_t a_stride,
                           const int32_t* a_rows, const BF16* b, int64_t b_panel_stride, int64_t rows,
                           int64_t cols, int64_t depth, const RowsAhead& next = {});

}  // namespace strata::cpu::detail
