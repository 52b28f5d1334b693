// Shared by the bf16 attention kernels: operands in memory, scores of a tile, masks.
#pragma once

#include "kernels/gpu/args.h"
#include "kernels/gpu/tile.cuh"
#include "kernels/gpu/vector.cuh"

namespace strata::gpu {

constexpr float kLog2E = 1.4426950408889634f;
constexpr int kRangeRows = 64;  // rows per entry of AttentionArgs::tiles

// Rows of one head in memory.
struct HeadRows {
  const BF16* at;  // row 0
  int64_t stride;
  int rows, dim;
};
__device__ __forceinline__ HeadRows head_rows(const void* matrix, int64_t stride, int sequence, int length,
                                              int head, int dim) {
  return {static_cast<const BF16*>(matrix) + static_cast<int64_t>(sequence) * length * stride +
              static_cast<int64_t>(head) * dim,
          stride, length, dim};
}
// The sequence whose keys and values a sequence reads.
__device__ __forceinline__ int key_sequence(const AttentionArgs& args, int sequence) {
  return args.entries != nullptr ? args.entries[sequence] : sequence;
}
template <int kRows, int kDim, int kThreads>
__device__ __forceinline__ void copy_head(uint32_t tile, const HeadRows& from, int first) {
  copy_rows<kRows, kDim / 8, kThreads>(tile, from.at + first * from.stride, from.stride, from.rows - first,
                                       from.dim);
}

// Keys that rows of a block see: [begin, end) by any row, [full_begin, full_end) by all rows.
struct KeyRange {
  int begin, end, full_begin, full_end;
};
__device__ __forceinline__ KeyRange key_range(const AttentionArgs& args, int sequence, int first, int count) {
  const int tiles = (args.length + kRangeRows - 1) / kRangeRows;
  KeyRange range{args.kv_length, 0, 0, args.kv_length};
  for (int tile = first / kRangeRows; tile < tiles && tile * kRangeRows < first + count; ++tile) {
    const int4 one =
        *reinterpret_cast<const int4*>(args.tiles + (static_cast<int64_t>(sequence) * tiles + tile) * 4);
    range.begin = min(range.begin, one.x);
    range.end = max(range.end, one.y);
    range.full_begin = max(range.full_begin, one.z);
    range.full_end = min(range.full_end, one.w);
  }
  return range;
}
__device__ __forceinline__ int2 keys_of_row(const AttentionArgs& args, int sequence, int row) {
  return row < args.length ? *reinterpret_cast<const int2*>(
                                 args.rows + (static_cast<int64_t>(sequence) * args.length + row) * 2)
                           : make_int2(0, 0);
}

// The share of the cap, tanh(scale · product / softcap), that a score takes. `unit`: 2 · scale / softcap.
__device__ __forceinline__ float capped_share(float product, float unit) {
  // tanh from the exponential: accurate enough for a score that is rounded afterwards.
  return fmaf(-2.0f, reciprocal_fast(exp_fast(product * unit) + 1.0f), 1.0f);
}

// sum += a · bᵀ over kDim: kTiles × 16 rows of one tile and kPairs × 16 rows of another. `a` is from
// begin_across, `b` from begin_along.
template <int kTiles, int kPairs, int kDim>
__device__ __forceinline__ void multiply_rows(float (&sum)[kTiles][2 * kPairs][4], uint32_t a, uint32_t b) {
  constexpr int kChunks = kDim / 8;
#pragma unroll
  for (int d = 0; d < kDim / 16; ++d) {
    uint32_t left[kTiles][4];
#pragma unroll
    for (int i = 0; i < kTiles; ++i) load_matrices(left[i], moved<kChunks>(a, i * 16, d * 2));
#pragma unroll
    for (int j = 0; j < kPairs; ++j) {
      uint32_t right[4];
      load_matrices(right, moved<kChunks>(b, j * 16, d * 2));
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
        multiply_bf16(sum[i][2 * j], left[i], right[0], right[1]);
        multiply_bf16(sum[i][2 * j + 1], left[i], right[2], right[3]);
      }
    }
  }
}

// sum += weights · b: weights in the accumulator layout of multiply_rows, rounded to bf16; b has kPairs × 16
// rows and kDim columns and is from begin_across.
template <int kTiles, int kPairs, int kDim>
__device__ __forceinline__ void multiply_weights(float (&sum)[kTiles][kDim / 8][4],
                                                 const float (&weights)[kTiles][2 * kPairs][4], uint32_t b) {
#pragma unroll
  for (int k = 0; k < kPairs; ++k) {
    uint32_t left[kTiles][4];
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
      left[i][0] = pack_bf16(weights[i][2 * k][0], weights[i][2 * k][1]);
      left[i][1] = pack_bf16(weights[i][2 * k][2], weights[i][2 * k][3]);
      left[i][2] = pack_bf16(weights[i][2 * k + 1][0], weights[i][2 * k + 1][1]);
      left[i][3] = pack_bf16(weights[i][2 * k + 1][2], weights[i][2 * k + 1][3]);
    }
#pragma unroll
    for (int d = 0; d < kDim / 16; ++d) {
      uint32_t right[4];
      load_matrices_transposed(right, moved<kDim / 8>(b, k * 16, d * 2));
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
        multiply_bf16(sum[i][2 * d], left[i], right[0], right[1]);
        multiply_bf16(sum[i][2 * d + 1], left[i], right[2], right[3]);
      }
    }
  }
}

// Writes kTiles × 16 rows and kDim columns as bf16, each row times factor[i][half].
template <int kTiles, int kDim>
__device__ __forceinline__ void store_rows(const float (&sum)[kTiles][kDim / 8][4],
                                           const float (&factor)[kTiles][2], BF16* to, int64_t stride,
                                           int rows, int dim) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const bool odd = lane % 2 != 0;
#pragma unroll
  for (int i = 0; i < kTiles; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = i * 16 + half * 8 + lane / 4;
      const float f = factor[i][half];
#pragma unroll
      for (int d = 0; d < kDim / 8; d += 2) {
        // Even lanes get four columns of the first eight, odd lanes four of the second.
        const float a0 = sum[i][d][half * 2] * f, a1 = sum[i][d][half * 2 + 1] * f;
        const float b0 = sum[i][d + 1][half * 2] * f, b1 = sum[i][d + 1][half * 2 + 1] * f;
        const float got0 = shuffle_xor(odd ? a0 : b0, 1), got1 = shuffle_xor(odd ? a1 : b1, 1);
        const float four[4] = {odd ? got0 : a0, odd ? got1 : a1, odd ? b0 : got0, odd ? b1 : got1};
        const int column = d * 8 + (odd ? 8 : 0) + lane % 4 / 2 * 4;
        if (row < rows && column < dim) store(to + row * stride + column, four);
      }
    }
  }
}

}  // namespace strata::gpu
