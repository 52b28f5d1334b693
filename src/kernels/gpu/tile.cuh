// Tiles of bf16 in shared memory: rows of kChunks pieces of 16 bytes, permuted so that the eight rows that a matrix load reads at one
// place lie in different banks.
#pragma once

#include "kernels/gpu/intrinsics.cuh"

namespace strata::gpu {

template <int kChunks>
struct TileRows {
  static_assert(kChunks % 4 == 0, "rows of 64 bytes or more");
  static constexpr int kPitch = kChunks * 16;  // bytes
  // By what the place of a piece is changed, in bytes: exclusive or with its own.
  static __device__ __forceinline__ int twist(int row) {
    return (kChunks % 8 == 0 ? row & 7 : row >> 1 & 3) << 4;
  }
  static __device__ __forceinline__ uint32_t at(int row, int chunk) {
    return static_cast<uint32_t>(row * kPitch + (chunk << 4 ^ twist(row)));
  }
};

// Copies `rows` rows of `elements` elements each (a multiple of 8) from rows that are `stride` apart into a tile of kRows rows; what is
// beyond becomes zero. `from` and its rows are aligned to 16 bytes.
template <int kRows, int kChunks, int kThreads>
__device__ __forceinline__ void copy_rows(uint32_t tile, const BF16* from, int64_t stride, int rows, int elements) {
  static_assert(kRows * kChunks % kThreads == 0, "each thread copies as many pieces");
#pragma unroll
  for (int i = 0; i < kRows * kChunks / kThreads; ++i) {
    const int piece = i * kThreads + static_cast<int>(threadIdx.x);
    const int row = piece / kChunks, chunk = piece % kChunks;
    const bool inside = row < rows && chunk * 8 < elements;
    copy_async(tile + TileRows<kChunks>::at(row, chunk), inside ? from + row * stride + chunk * 8 : from, inside ? 16 : 0);
  }
}

// Fragments of mma from tiles. `row`, `chunk`: of the fragment's first element.

// Left operand of 16 rows × 16: rows of the tile are rows of the operand.
template <int kChunks>
__device__ __forceinline__ void load_left(uint32_t (&to)[4], uint32_t tile, int row, int chunk) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  load_matrices(to, tile + TileRows<kChunks>::at(row + lane % 16, chunk + lane / 16));
}
// The same where rows of the tile are columns of the operand. `row` is its first column, `chunk` of its first row.
template <int kChunks>
__device__ __forceinline__ void load_left_transposed(uint32_t (&to)[4], uint32_t tile, int row, int chunk) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  load_matrices_transposed(to, tile + TileRows<kChunks>::at(row + lane % 8 + lane / 16 * 8, chunk + lane / 8 % 2));
}
// Two right operands of 16 × 8, of consecutive columns: words 0 and 1, and 2 and 3. Rows of the tile are columns of the operands.
template <int kChunks>
__device__ __forceinline__ void load_right(uint32_t (&to)[4], uint32_t tile, int row, int chunk) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  load_matrices(to, tile + TileRows<kChunks>::at(row + lane % 8 + lane / 16 * 8, chunk + lane / 8 % 2));
}
// The same where rows of the tile are rows of the operands.
template <int kChunks>
__device__ __forceinline__ void load_right_transposed(uint32_t (&to)[4], uint32_t tile, int row, int chunk) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  load_matrices_transposed(to, tile + TileRows<kChunks>::at(row + lane % 16, chunk + lane / 16));
}

}  // namespace strata::gpu
