// bf16 tiles in shared memory: rows of kChunks chunks of 16 bytes, permuted so that the eight rows of a
// matrix load are in different banks.
#pragma once

#include "kernels/gpu/intrinsics.cuh"

namespace strata::gpu {

template <int kChunks>
struct TileRows {
  static_assert(kChunks % 4 == 0, "rows of 64 bytes or more");
  static constexpr int kPitch = kChunks * 16;  // bytes
  // The permutation: the byte offset of a chunk is XORed with this.
  static __device__ __forceinline__ int twist(int row) {
    return (kChunks % 8 == 0 ? row & 7 : row >> 1 & 3) << 4;
  }
  static __device__ __forceinline__ uint32_t at(int row, int chunk) {
    return static_cast<uint32_t>(row * kPitch + (chunk << 4 ^ twist(row)));
  }
};

// Copies `rows` rows of `elements` elements each (a multiple of 8), `stride` apart, into a tile of kRows
// rows; the rest becomes zero, without a read at its address. `from` and its rows are aligned to 16 bytes.
template <int kRows, int kChunks, int kThreads>
__device__ __forceinline__ void copy_rows(uint32_t tile, const BF16* from, int64_t stride, int rows,
                                          int elements) {
  static_assert(kRows * kChunks % kThreads == 0, "each thread copies the same number of chunks");
  const int thread = static_cast<int>(threadIdx.x);
  if constexpr (kThreads % (8 * kChunks) == 0 || (kThreads == 4 * kChunks && kChunks % 8 == 0)) {
    // A thread copies the same chunk of rows with the same permutation, or with two that differ in one bit.
    constexpr int kRowsAtOnce = kThreads / kChunks;
    const auto place_of = [](uint32_t place, int i) {
      return (place ^ static_cast<uint32_t>(i * kRowsAtOnce % 8 << 4)) +
             i * kRowsAtOnce * TileRows<kChunks>::kPitch;
    };
    const int row = thread / kChunks, chunk = thread % kChunks;
    const uint32_t place = tile + TileRows<kChunks>::at(row, chunk);
    const BF16* at = from + row * stride + chunk * 8;
    if (rows >= kRows && elements == kChunks * 8) {
#pragma unroll
      for (int i = 0; i < kRows / kRowsAtOnce; ++i, at += kRowsAtOnce * stride)
        copy_async(place_of(place, i), at);
      return;
    }
    const int left = chunk * 8 < elements ? rows - row : 0;
#pragma unroll
    for (int i = 0; i < kRows / kRowsAtOnce; ++i) {
      const bool inside = i * kRowsAtOnce < left;
      copy_async(place_of(place, i), at + i * kRowsAtOnce * stride, inside ? 16 : 0);
    }
  } else {
    // Not more at once: compilers would keep each piece's address.
#pragma unroll 2
    for (int i = 0; i < kRows * kChunks / kThreads; ++i) {
      const int piece = i * kThreads + thread, row = piece / kChunks, chunk = piece % kChunks;
      const bool inside = row < rows && chunk * 8 < elements;
      copy_async(tile + TileRows<kChunks>::at(row, chunk), from + row * stride + chunk * 8, inside ? 16 : 0);
    }
  }
}

// mma fragments from tiles. A lane starts at its address in a tile, which is aligned to 128 bytes, and moves
// by rows (a multiple of 16) and chunks (a multiple of 2) that are compile-time constants: one operation per
// load, and no register for each address.
//
// begin_across: for left operands whose rows are the tile's rows, and right operands whose columns are the
// tile's columns (loaded transposed). begin_along: for right operands whose columns are the tile's rows, and
// left operands whose rows are the tile's columns (loaded transposed).
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
  constexpr int kGroup = kChunks % 8 == 0 ? 8 : 4;  // chunks permuted among themselves
  return (begin ^ static_cast<uint32_t>(chunk % kGroup << 4)) +
         static_cast<uint32_t>(chunk / kGroup * kGroup * 16 + row * TileRows<kChunks>::kPitch);
}

}  // namespace strata::gpu
