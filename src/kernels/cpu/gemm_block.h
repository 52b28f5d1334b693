// Inner kernels of the in-house fp32 GEMM: pack blocks of operands into panels and multiply two packed
// blocks, in portable SIMD with run-time dispatch. Internal to the gemm family.
//
// C[rows, cols] (+)= A[rows, depth] · B[depth, cols]. A is packed in panels of `mr` rows, laid out
// [panel][depth][mr]; B in panels of `nr` columns, laid out [panel][depth][nr]; both zero-padded.
#pragma once

#include <cstdint>

#include "hardware/device_spec.h"
#include "tensor/dtype.h"

namespace strata::cpu::detail {

// Panel sizes of this processor's kernel.
struct PanelShape {
  int64_t mr = 0;
  int64_t nr = 0;
};
PanelShape panel_shape();
// Panel sizes of a processor with these instruction sets.
PanelShape panel_shape_of(const hardware::IsaFlags& isa);

// A strided operand in memory. Index i runs along the panel (rows of A, columns of B), j along the depth.
// Element (i, j) is data[i * stride + j], or data[j * stride + i] if depth_major.
struct OperandView {
  const void* data = nullptr;
  DType dtype = DType::kF32;
  int64_t stride = 0;
  bool depth_major = false;
  DType rounded_to = DType::kF32;  // f32 values are rounded to this type
};

// Packs `count` rows (or columns) from `begin` on, depths [depth_begin, depth_begin + depth).
void pack_panels(float* dst, int64_t panel, const OperandView& view, int64_t begin, int64_t count,
                 int64_t depth_begin, int64_t depth);

// Packs a depth-major operand whose depth p is in row depths[p].
void pack_panels_listed(float* dst, int64_t panel, const OperandView& view, const int32_t* depths,
                        int64_t begin, int64_t count, int64_t depth);

// Destination of a block's result.
struct BlockOutput {
  float* data = nullptr;
  int64_t stride = 0;
  bool accumulate = false;
  const float* bias = nullptr;  // of the block's first column, added to every row; may be null
  // With accumulate: start the sums from the stored values, so that a depth split over several calls has the
  // bits of a single call. Otherwise the stored values are added at the end.
  bool continues = false;
};

// What a block's sums are multiplied with before they are added to the result: row r and column j of the block by
// rows[r] · cols[j]. `cols` can be read up to a multiple of the panel width.
struct SumScales {
  const float* rows = nullptr;
  const float* cols = nullptr;
};

// Panel strides are elements between panels: `depth` may be only part of the depth of the packed block.
// `next`: first panel of the next call, to prefetch; may be null.
void multiply_block(const BlockOutput& out, const float* a, int64_t a_panel_stride, const float* b,
                    int64_t b_panel_stride, int64_t rows, int64_t cols, int64_t depth,
                    const float* next = nullptr);

// Like multiply_block(), with scaled sums; not with `continues`. Row i is row out_rows[i] of C; nullptr: row i itself.
void multiply_block_scaled(const BlockOutput& out, const int32_t* out_rows, const SumScales& scales,
                           const float* a, int64_t a_panel_stride, const float* b, int64_t b_panel_stride,
                           int64_t rows, int64_t cols, int64_t depth, const float* next = nullptr);

// Like multiply_block(), with unpacked A: row i is at a + i * a_stride, its depth contiguous.
void multiply_block_rows(const BlockOutput& out, const float* a, int64_t a_stride, const float* b,
                         int64_t b_panel_stride, int64_t rows, int64_t cols, int64_t depth,
                         const float* next = nullptr);

// Like multiply_block_rows(), but gathers rows of A and scatters rows of C: row i is row a_rows[i] of A and
// row out_rows[i] of C. Two rows must not share a row of C. A null list stands for row i itself.
void multiply_block_listed(const BlockOutput& out, const int32_t* out_rows, const float* a, int64_t a_stride,
                           const int32_t* a_rows, const float* b, int64_t b_panel_stride, int64_t rows,
                           int64_t cols, int64_t depth);

}  // namespace strata::cpu::detail
