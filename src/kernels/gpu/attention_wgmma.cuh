// Shared by the attention kernels of sm_90a. Tiles are consecutive panels of 64 columns.
#pragma once

#include "kernels/gpu/attention.cuh"
#include "kernels/gpu/hopper.cuh"

namespace strata::gpu {

// Copies a tile of kRows rows in boxes of 64 rows.
template <int kPanels, int kRows>
__device__ __forceinline__ void copy_panels(uint32_t to, const TensorMap& map, int row, int column,
                                            uint32_t barrier) {
#pragma unroll
  for (int panel = 0; panel < kPanels; ++panel) {
#pragma unroll
    for (int first = 0; first < kRows; first += 64)
      copy_box(to + (panel * kRows + first) * 128, map, row + first, column + panel * 64, barrier);
  }
}

// sum = a · bᵀ: 64 rows of a tile of kRowsA rows, `a` pointing to their start in the first panel, and all
// rows of a tile of kRowsB rows.
template <int kDim, int kRowsA, int kRowsB>
__device__ __forceinline__ void multiply_panels(float (&sum)[kRowsB / 8][4], uint32_t a, uint32_t b) {
#pragma unroll
  for (int d = 0; d < kDim / 16; ++d)
    multiply_async(sum, operand<true>(a + d / 4 * kRowsA * 128, 0) + d % 4 * kNextDepth<true>,
                   operand<true>(b + d / 4 * kRowsB * 128, 0) + d % 4 * kNextDepth<true>, d > 0);
}

// Converts weights from the accumulator layout to left operands.
template <int kColumns>
__device__ __forceinline__ void pack_weights(uint32_t (&to)[kColumns / 16][4],
                                             const float (&from)[kColumns / 8][4]) {
#pragma unroll
  for (int k = 0; k < kColumns / 16; ++k) {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      to[k][i] = pack_bf16(from[2 * k + i / 2][i % 2 * 2], from[2 * k + i / 2][i % 2 * 2 + 1]);
  }
}
// sum += weights · b; b is a tile of kColumns rows.
template <int kColumns, int kCount>
__device__ __forceinline__ void multiply_weights_async(float (&sum)[kCount][4],
                                                       const uint32_t (&weights)[kColumns / 16][4],
                                                       uint32_t b) {
#pragma unroll
  for (int k = 0; k < kColumns / 16; ++k)
    multiply_async(sum, weights[k], operand<false>(b, kColumns * 128) + k * kNextDepth<false>);
}

}  // namespace strata::gpu
