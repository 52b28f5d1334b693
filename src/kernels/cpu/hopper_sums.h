// A model of the sums of Hopper's fp8 tensor cores. Internal to scaled_gemm.
#pragma once

#include <cstdint>

#include "kernels/cpu/gemm_block.h"

namespace strata::cpu::detail {

inline constexpr PanelShape kHopperPanels{16, 16};

// multiply_block_scaled() on panels of kHopperPanels, whose sums over the whole of `depth` are kept in an accumulator as
// DeepSeek-V3 (technical report, section 3.3.2) describes it: an instruction takes 32 depths; their exact terms a · b and
// the accumulator are aligned to the greatest exponent among them, cut (towards zero) to 14 significant bits at that
// alignment, and added. The sum is the next accumulator, exact until the next instruction cuts it. Terms are less than
// 2^100, as those of fp8 codes are.
void multiply_hopper(const BlockOutput& out, const SumScales& scales, const float* a, int64_t a_panel_stride,
                     const float* b, int64_t b_panel_stride, int64_t rows, int64_t cols, int64_t depth,
                     const float* next);

}  // namespace strata::cpu::detail
