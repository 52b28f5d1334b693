// Tiles of bf16 in shared memory: rows of kChunks pieces of 16 bytes, permuted so that the eight rows that a
// matrix load reads at one place lie in different banks.
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

// Copies `rows` rows of `elements` elements each (a multiple of 8) from rows that are `stride` apart into a
// tile of kRows rows; what is beyond becomes zero. `from` and its rows are aligned to 16 bytes.
template <int kRows, int kChunks, int kThreads>
__device__ __forceinline__ void copy_rows(uint32_t tile, const BF16* from, int64_t stride, int rows,
                                          int elements) {
  static_assert(kRows * kChunks % kThreads == 0, "each thread copies as many pieces");
  const int thread = static_cast<int>(threadIdx.x);
  if constexpr (kThreads % (8 * kChunks) == 0) {
    // A thread's pieces are at one place of rows that are permuted alike.
    constexpr int kRowsAtOnce = kThreads / kChunks;
    const int row = thread / kChunks, chunk = thread % kChunks;
    const uint32_t place = tile + TileRows<kChunks>::at(row, chunk);
    const BF16* at = from + row * stride + chunk * 8;
    if (rows >= kRows && elements == kChunks * 8) {
#pragma unroll
      for (int i = 0; i < kRows / kRowsAtOnce; ++i, at += kRowsAtOnce * stride)
        copy_async(place + i * kRowsAtOnce * TileRows<kChunks>::kPitch, at);
      return;
    }
    const int left = chunk * 8 < elements ? rows - row : 0;
#pragma unroll
    for (int i = 0; i < kRows / kRowsAtOnce; ++i) {
      const bool inside = i * kRowsAtOnce < left;
      copy_async(place + i * kRowsAtOnce * TileRows<kChunks>::kPitch,
                 inside ? at + i * kRowsAtOnce * stride : from, inside ? 16 : 0);
    }
  } else {
#pragma unroll
    for (int i = 0; i < kRows * kChunks / kThreads; ++i) {
      const int piece = i * kThreads + thread, row = piece / kChunks, chunk = piece % kChunks;
      const bool inside = row < rows && chunk * 8 < elements;
      copy_async(tile + TileRows<kChunks>::at(row, chunk), inside ? from + row * stride + chunk * 8 : from,
                 inside ? 16 : 0);
    }
  }
}

// Fragments of mma from tiles. A lane begins at its address in a tile, which starts at a multiple of 128
// bytes, and moves from there by rows (a multiple of 16) and pieces (a multiple of 2) that the compiler
// knows: one operation a load, and no address held for each.
//
// begin_across: left operands whose rows are the tile's, and right ones whose columns are the tile's columns
// (loaded transposed). begin_along: right operands whose columns are the tile's rows, and left ones whose
// rows are the tile's columns (loaded transposed).
template <int kChunks>
__device__ __forceinline__ uint32_t begin_across(uint32_t tile, int row) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  return tile + TileRows<kChunks>::at(row + lane % 16, lane / 16);
}
template <int kChunks>
__device__ __forceinline__ uint32_t begin_along(uint32_t tile, int row) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  return tile + TileRows<kChunks>::at(row + lane % 8 + lane / 16 * 8, lane / 8 % 2);
}
template <int kChunks>
__device__ __forceinline__ uint32_t moved(uint32_t begin, int row, int chunk) {
  constexpr int kGroup = kChunks % 8 == 0 ? 8 : 4;  // pieces that are permuted among themselves
  return (begin ^ static_cast<uint32_t>(chunk % kGroup << 4)) +
         static_cast<uint32_t>(chunk / kGroup * kGroup * 16 + row * TileRows<kChunks>::kPitch);
}

}  // namespace strata::gpu
