// Presents weights as the packed tensors of published formats, quantised while they are written, without a copy of a
// tensor; packed_weights.h describes the formats and reads them.
#pragma once

#include <vector>

#include "checkpoint/tensor_io.h"

namespace strata::checkpoint {

// A matrix [R, C] as NAME in F8_E4M3 and NAME_scale_inv in F32 [⌈R/128⌉, ⌈C/128⌉]. A block's scale is s = max(a, 1e-4) / 448
// with its greatest magnitude a, its codes are the e4m3 values nearest to w / s, ties to even, clamped to ±448; both
// divisions in fp32 (DeepSeek-V3). The view must be of fp32, bf16 or fp16, neither split nor transposed.
bool has_fp8_blocks(const TensorView& weight);
std::vector<TensorView> in_fp8_blocks(const TensorView& weight);

// Experts [E, I, O] as NAME_blocks in U8 [E, O, I / 32, 16] and NAME_scales in U8 [E, O, I / 32]: 32 weights of an output are
// e2m1 codes, two a byte, the lower half first, times 2^(scale − 127) (OCP Microscaling 1.0; the exponent follows its
// section 6.3: that of the greatest magnitude, less 2). I must be a multiple of 32.
bool has_mxfp4_blocks(const TensorView& experts);
std::vector<TensorView> in_mxfp4_blocks(const TensorView& experts);

}  // namespace strata::checkpoint
