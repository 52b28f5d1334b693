// The inner part of the own f32 GEMM engine: packing of operand blocks into panels and the product of two
// packed blocks, in portable SIMD with run-time choice of the instruction set. Internal to the gemm family.
//
// C[rows, cols] (+)= A[rows, depth] · B[depth, cols]. A is packed in panels of `mr` rows, laid out
// [panel][depth][mr]; B in panels of `nr` columns, laid out [panel][depth][nr]; both zero-padded.
#pragma once

#include <cstdint>

#include "hardware/device_spec.h"
#include "tensor/dtype.h"

namespace strata::cpu::detail {

// The panel sizes of this processor's kernel.
struct PanelShape {
  int64_t mr = 0;
  int64_t nr = 0;
};
PanelShape panel_shape();
// Of a processor with these instruction sets.
PanelShape panel_shape_of(const hardware::IsaFlags& isa);

// A strided operand as it lies in memory: element (i, j) of i along the panel direction (rows of A, columns
// of B) and j along the depth is at data[i * stride + j] when depth_major is false, at data[j * stride + i]
// when it is true.
struct OperandView {
  const void* data = nullptr;
  DType dtype = DType::kF32;
  int64_t stride = 0;
  bool depth_major = false;
  bool round_to_bf16 = false;  // f32 values take part rounded to bf16
};

// Packs `count` rows (or columns) starting at `begin`, depths [depth_begin, depth_begin + depth).
void pack_panels(float* dst, int64_t panel, const OperandView& view, int64_t begin, int64_t count,
                 int64_t depth_begin, int64_t depth);

// The same of a depth-major operand whose depth p lies in row depths[p].
void pack_panels_listed(float* dst, int64_t panel, const OperandView& view, const int32_t* depths,
                        int64_t begin, int64_t count, int64_t depth);

// Where a block's result goes.
struct BlockOutput {
  float* data = nullptr;
  int64_t stride = 0;
  bool accumulate = false;
  const float* bias = nullptr;  // of the block's first column, added to every row; may be null
  // With accumulate: sums begin with what lies there, so that a depth done in several calls gives the bits of
  // one; else they are added to it.
  bool continues = false;
};

// Panel strides are elements between panels: `depth` may be a part of a deeper packed block. `next`: the
// panel that the next call begins with, to be asked for ahead; may be null.
void multiply_block(const BlockOutput& out, const float* a, int64_t a_panel_stride, const float* b,
                    int64_t b_panel_stride, int64_t rows, int64_t cols, int64_t depth,
                    const float* next = nullptr);

// The same with A unpacked: row i at a + i * a_stride, depth contiguous.
void multiply_block_rows(const BlockOutput& out, const float* a, int64_t a_stride, const float* b,
                         int64_t b_panel_stride, int64_t rows, int64_t cols, int64_t depth,
                         const float* next = nullptr);

// The same with rows gathered and scattered on the way: row i is row a_rows[i] of A and row out_rows[i] of C,
// which no two may share; null: row i itself.
void multiply_block_listed(const BlockOutput& out, const int32_t* out_rows, const float* a, int64_t a_stride,
                           const int32_t* a_rows, const float* b, int64_t b_panel_stride, int64_t rows,
                           int64_t cols, int64_t depth);

}  // namespace strata::cpu::detail
