// fp32 matmul of tiles whose elements come from functions: for operands whose rows are listed, or of two types. A block
// of 256 threads computes 64 × 64; each thread 4 × 4. Sums are in order of the depth.
#pragma once

#include "kernels/gpu/vector.cuh"

namespace strata::gpu {

constexpr int kPlainTile = 64, kPlainDepth = 16, kPlainThreads = 256;

// sum += Σ over the depth of left(row, k) · right(k, column), rows and columns counted from the tile's. kInner:
// neighbours in memory are along the depth. Functions give 0 outside the matrix.
template <bool kLeftInner, bool kRightInner, typename Left, typename Right>
__device__ __forceinline__ void multiply_plain(float (&sum)[4][4], int64_t depth, const Left& left,
                                               const Right& right) {
  __shared__ __align__(16) float a[kPlainDepth][kPlainTile + 4];
  __shared__ __align__(16) float b[kPlainDepth][kPlainTile + 4];
  const int thread = static_cast<int>(threadIdx.x);
  for (int64_t begin = 0; begin < depth; begin += kPlainDepth) {
#pragma unroll
    for (int i = 0; i < kPlainDepth * kPlainTile / kPlainThreads; ++i) {
      const int at = thread + i * kPlainThreads;
      const int row_k = kLeftInner ? at % kPlainDepth : at / kPlainTile,
                row = kLeftInner ? at / kPlainDepth : at % kPlainTile;
      a[row_k][row] = begin + row_k < depth ? left(row, begin + row_k) : 0.0f;
      const int column_k = kRightInner ? at % kPlainDepth : at / kPlainTile,
                column = kRightInner ? at / kPlainDepth : at % kPlainTile;
      b[column_k][column] = begin + column_k < depth ? right(begin + column_k, column) : 0.0f;
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < kPlainDepth; ++k) {
      float x[4], y[4];
      load(&a[k][thread / 16 * 4], x);
      load(&b[k][thread % 16 * 4], y);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) sum[i][j] = fmaf(x[i], y[j], sum[i][j]);
      }
    }
    __syncthreads();
  }
}

// Calls put(row, column, value) for this thread's elements of the tile.
template <typename Put>
__device__ __forceinline__ void put_plain(const float (&sum)[4][4], const Put& put) {
  const int row = static_cast<int>(threadIdx.x) / 16 * 4, column = static_cast<int>(threadIdx.x) % 16 * 4;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) put(row + i, column + j, sum[i][j]);
  }
}

}  // namespace strata::gpu
