// bf16 GEMM by mma with fp32 sums: a block computes a tile of c in depth steps of 64, loaded by asynchronous
// copies into a ring of stages in shared memory. Each warp has 64 × 64 of the tile. The order of every sum
// depends only on the shape.
#pragma once

#include "kernels/gpu/args.h"
#include "kernels/gpu/tile.cuh"
#include "kernels/gpu/vector.cuh"

namespace strata::gpu {

constexpr int kGemmDepth = 64;  // per stage

template <int kRows, int kColumns, int kStagesOf>
struct GemmTile {
  static constexpr int kM = kRows, kN = kColumns, kStages = kStagesOf;
  static constexpr int kWarpsM = kM / 64, kWarpsN = kN / 64, kThreads = kWarpsM * kWarpsN * kWarp;
  static constexpr int kStageA = kM * kGemmDepth * 2, kStageB = kN * kGemmDepth * 2;  // bytes
  static constexpr int kShared = kStages * (kStageA + kStageB);
};

// Copies one operand. The outer axis is c's rows or columns. kDepthInner: consecutive elements are along the
// depth.
template <bool kDepthInner, int kOuter, int kThreads, bool kAligned>
struct GemmOperand {
  static constexpr int kChunks = kDepthInner ? kGemmDepth / 8 : kOuter / 8;  // per row of the tile
  static constexpr int kRowsAtOnce = kThreads / kChunks;
  static constexpr int kSteps = (kDepthInner ? kOuter : kGemmDepth) / kRowsAtOnce;
  static_assert(kRowsAtOnce % 8 == 0, "the permutation of a thread's chunks is the same in all of its rows");

  const void* matrix;  // an aligned address
  const BF16* from;    // first element of the next stage that this thread copies
  int64_t stride;
  uint32_t place;  // in a tile
  int outer;       // remaining rows or columns of the matrix from the tile on

  __device__ GemmOperand(const void* matrix_, int64_t stride_, int first, int outer_size, int begin)
      : matrix(matrix_),
        stride(stride_),
        place(TileRows<kChunks>::at(row(), chunk())),
        outer(outer_size - first) {
    from = static_cast<const BF16*>(matrix) + ((kDepthInner ? first : begin) + row()) * stride +
           (kDepthInner ? begin : first) + chunk() * 8;
  }
  static __device__ __forceinline__ int row() { return static_cast<int>(threadIdx.x) / kChunks; }
  static __device__ __forceinline__ int chunk() { return static_cast<int>(threadIdx.x) % kChunks; }
  __device__ __forceinline__ bool whole() const { return kAligned && outer >= kOuter; }

  // Loads the next stage into the tile at `to`. `depth`: the remaining depth. kWhole: the stage is completely
  // inside the matrix.
  template <bool kWhole>
  __device__ __forceinline__ void copy(uint32_t to, int depth) {
    const int rows = (kDepthInner ? outer : depth) - row(),
              count = min(8, max(0, (kDepthInner ? depth : outer) - chunk() * 8));
    const BF16* at = from;
    // All elements of several unaligned steps at once would not fit in the registers.
#pragma unroll(kAligned ? kSteps : 1)
    for (int step = 0; step < kSteps; ++step) {
      const bool inside = step * kRowsAtOnce < rows && count > 0;
      const uint32_t into = to + place + step * kRowsAtOnce * TileRows<kChunks>::kPitch;
      if constexpr (!kAligned) {
        uint32_t pairs[4];
#pragma unroll
        for (int p = 0; p < 4; ++p) {
          const uint32_t low = inside && 2 * p < count ? at[2 * p].bits : 0;
          const uint32_t high = inside && 2 * p + 1 < count ? at[2 * p + 1].bits : 0;
          pairs[p] = low | high << 16;
        }
        store_shared(into, make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]));
      } else if constexpr (kWhole) {
        copy_async(into, at);
      } else {
        copy_async(into, inside ? static_cast<const void*>(at) : matrix, inside ? count * 2 : 0);
      }
      at += kRowsAtOnce * stride;
    }
    from += kDepthInner ? kGemmDepth : kGemmDepth * stride;
  }
};

// Exchanges columns between the lanes of a row. Before: a lane has two adjacent columns of each of two tiles
// of 8. After: it has four adjacent columns of one tile (even lanes the first tile), so that lanes write 32
// contiguous bytes of bf16.
__device__ __forceinline__ void gather_columns(float (&four)[4], float a0, float a1, float b0, float b1,
                                               bool odd) {
  const float give0 = odd ? a0 : b0, give1 = odd ? a1 : b1;
  const float got0 = shuffle_xor(give0, 1), got1 = shuffle_xor(give1, 1);
  four[0] = odd ? got0 : a0, four[1] = odd ? got1 : a1, four[2] = odd ? b0 : got0, four[3] = odd ? b1 : got1;
}

template <typename Out>
struct GemmOutput {
  Out* c;
  const float* bias;
  const int32_t* rows;  // row numbers in c; null: unchanged
  int64_t stride;
  int m, n;
  bool accumulate, vectors;  // vectors: four columns are one access

  __device__ GemmOutput(const GemmArgs& args, int part, const int32_t* rows_ = nullptr)
      : c(static_cast<Out*>(args.c) + (args.splits > 1 ? static_cast<int64_t>(part) * args.m * args.n : 0)),
        bias(args.bias),
        rows(rows_),
        stride(args.c_stride),
        m(args.m),
        n(args.n),
        accumulate(args.accumulate != 0),
        vectors(aligned_to(c, args.c_stride, 4)) {}

  __device__ __forceinline__ bool whole(int column) const { return vectors && column + 4 <= n; }
  // Loads four columns of c if accumulating. Separate from put, so that several loads are in flight.
  __device__ __forceinline__ void get(const Out* from, int column, float (&four)[4]) const {
    if (!accumulate) return;
    if (whole(column)) {
      load(from, four);
      return;
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (column + i < n) four[i] = to_float(from[i]);
    }
  }
  __device__ __forceinline__ void put(Out* to, int column, const float (&old)[4], float (&four)[4]) const {
    if (column >= n) return;
    if (bias != nullptr) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (column + i < n) four[i] += bias[column + i];
      }
    }
    if (accumulate) {
#pragma unroll
      for (int i = 0; i < 4; ++i) four[i] += old[i];
    }
    if (whole(column)) {
      store(to, four);
      return;
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (column + i < n) to[i] = from_float<Out>(four[i]);
    }
  }
  // Writes eight rows and kCount columns from accumulators: of row lane / 4 and each group j of eight
  // columns, a lane has columns lane % 4 · 2 and the next in sum[j][half · 2] and the next element.
  template <int kCount>
  __device__ __forceinline__ void put_row(int row, int column, const float (&sum)[kCount / 8][4],
                                          int half) const {
    constexpr int kAtOnce = 4;
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const bool odd = lane % 2 != 0;
    row += lane / 4, column += (odd ? 8 : 0) + lane % 4 / 2 * 4;
    const bool inside = row < m;
    Out* const to = c + (inside && rows != nullptr ? rows[row] : row) * stride + column;
#pragma unroll
    for (int first = 0; first < kCount / 16; first += kAtOnce) {
      float old[kAtOnce][4] = {};
#pragma unroll
      for (int p = 0; p < kAtOnce; ++p) {
        if (inside) get(to + (first + p) * 16, column + (first + p) * 16, old[p]);
      }
#pragma unroll
      for (int p = 0; p < kAtOnce; ++p) {
        const int j = (first + p) * 2;
        float four[4];
        gather_columns(four, sum[j][half * 2], sum[j][half * 2 + 1], sum[j + 1][half * 2],
                       sum[j + 1][half * 2 + 1], odd);
        if (inside) put(to + j * 8, column + j * 8, old[p], four);
      }
    }
  }
};

// Orders tiles in groups of kGroup rows of tiles, so that concurrent tiles share operands in the L2 cache.
template <int kGroup>
__device__ __forceinline__ void tile_of(int index, int tiles_m, int tiles_n, int* m, int* n) {
  const int group = index / (kGroup * tiles_n), first = group * kGroup, rows = min(kGroup, tiles_m - first);
  const int within = index - group * kGroup * tiles_n;
  *m = first + within % rows;
  *n = within / rows;
}

// Two blocks share a multiprocessor. Larger tiles are not faster on an H200: shared memory bandwidth is the
// limit.
using PlainTile = GemmTile<128, 128, 3>;

// Position of a warp's 64 × 64 in the tile.
template <typename Tile>
__device__ __forceinline__ int warp_row() {
  return static_cast<int>(threadIdx.x) / kWarp % Tile::kWarpsM * 64;
}
template <typename Tile>
__device__ __forceinline__ int warp_column() {
  return static_cast<int>(threadIdx.x) / kWarp / Tile::kWarpsM * 64;
}

// sum += the matmul of a tile's operands over `depth`.
template <typename Tile, bool kLeftInner, bool kRightInner, typename A, typename B>
__device__ __forceinline__ void multiply_tile(float (&sum)[4][8][4], A& a, B& b, int depth) {
  extern __shared__ __align__(1024) uint8_t shared[];
  constexpr int kStages = Tile::kStages;
  const uint32_t tile_a = shared_address(shared), tile_b = tile_a + kStages * Tile::kStageA;
  const int steps = (depth + kGemmDepth - 1) / kGemmDepth;
  // Steps whose copies need no bounds checks.
  const int whole_steps = a.whole() && b.whole() ? depth / kGemmDepth : 0;
  const auto bring = [&](int step, int stage) {
    const uint32_t to_a = tile_a + stage * Tile::kStageA, to_b = tile_b + stage * Tile::kStageB;
    if (step < whole_steps) {
      a.template copy<true>(to_a, 0);
      b.template copy<true>(to_b, 0);
    } else if (step < steps) {
      a.template copy<false>(to_a, depth - step * kGemmDepth);
      b.template copy<false>(to_b, depth - step * kGemmDepth);
    }
    commit_copies();
  };

  const int warp_m = warp_row<Tile>(), warp_n = warp_column<Tile>();
  // Addresses of the warp's fragments in the first stage.
  constexpr int kDepthChunks = kGemmDepth / 8, kChunksM = Tile::kM / 8, kChunksN = Tile::kN / 8;
  const uint32_t begin_a =
      kLeftInner ? begin_across<kDepthChunks>(tile_a, warp_m) : begin_along<kChunksM>(tile_a, 0) + warp_m * 2;
  const uint32_t begin_b = kRightInner ? begin_along<kDepthChunks>(tile_b, warp_n)
                                       : begin_across<kChunksN>(tile_b, 0) + warp_n * 2;
  uint32_t left[2][4][4], right[2][4][4];
  const auto fetch = [&](int buffer, int stage, int part) {
    const uint32_t from_a = begin_a + stage * Tile::kStageA, from_b = begin_b + stage * Tile::kStageB;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if constexpr (kLeftInner) {
        load_matrices(left[buffer][i], moved<kDepthChunks>(from_a, i * 16, part * 2));
      } else {
        load_matrices_transposed(left[buffer][i], moved<kChunksM>(from_a, part * 16, i * 2));
      }
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if constexpr (kRightInner) {
        load_matrices(right[buffer][j], moved<kDepthChunks>(from_b, j * 16, part * 2));
      } else {
        load_matrices_transposed(right[buffer][j], moved<kChunksN>(from_b, part * 16, j * 2));
      }
    }
  };

#pragma unroll
  for (int step = 0; step < kStages - 1; ++step) bring(step, step);
  wait_copies<kStages - 2>();
  __syncthreads();
  if (steps > 0) fetch(0, 0, 0);
  int stage = 0;
  for (int step = 0; step < steps; ++step) {
    constexpr int kParts = kGemmDepth / 16;
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      if (part == kParts - 1) {
        // The next step's stage has arrived, and all warps have read the current one.
        wait_copies<kStages - 2>();
        __syncthreads();
        stage = stage + 1 == kStages ? 0 : stage + 1;
      }
      if (part + 1 < kParts || step + 1 < steps) fetch((part + 1) % 2, stage, (part + 1) % kParts);
      if (part == 0) bring(step + kStages - 1, stage == 0 ? kStages - 1 : stage - 1);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int j = 0; j < 8; ++j)
          multiply_bf16(sum[i][j], left[part % 2][i], right[part % 2][j / 2][j % 2 * 2],
                        right[part % 2][j / 2][j % 2 * 2 + 1]);
      }
    }
  }
}

template <typename Tile, typename Out>
__device__ __forceinline__ void put_tile(const GemmOutput<Out>& out, int row, int column,
                                         const float (&sum)[4][8][4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half)
      out.template put_row<64>(row + warp_row<Tile>() + i * 16 + half * 8, column + warp_column<Tile>(),
                               sum[i], half);
  }
}

template <typename Tile, bool kLeftInner, bool kRightInner, typename Out, bool kAligned>
__device__ __forceinline__ void gemm(const GemmArgs& args) {
  const int tiles_m = (args.m + Tile::kM - 1) / Tile::kM, tiles_n = (args.n + Tile::kN - 1) / Tile::kN;
  int row, column;
  tile_of<8>(static_cast<int>(blockIdx.x), tiles_m, tiles_n, &row, &column);
  row *= Tile::kM, column *= Tile::kN;
  const int begin = static_cast<int>(blockIdx.y) * args.split_depth,
            end = min(args.k, begin + args.split_depth);
  GemmOperand<kLeftInner, Tile::kM, Tile::kThreads, kAligned> a(args.a, args.a_stride, row, args.m, begin);
  GemmOperand<kRightInner, Tile::kN, Tile::kThreads, kAligned> b(args.b, args.b_stride, column, args.n,
                                                                 begin);
  float sum[4][8][4] = {};
  multiply_tile<Tile, kLeftInner, kRightInner>(sum, a, b, end - begin);
  put_tile<Tile>(GemmOutput<Out>(args, static_cast<int>(blockIdx.y)), row, column, sum);
}

}  // namespace strata::gpu

// The kernels of one layout: for each type of c, and for unaligned rows of operands.
#define STRATA_GEMM(NAME, LEFT, RIGHT, OUT, ALIGNED)                             \
  extern "C" __global__ void __launch_bounds__(strata::gpu::PlainTile::kThreads) \
      NAME(const __grid_constant__ strata::gpu::GemmArgs args) {                 \
    strata::gpu::gemm<strata::gpu::PlainTile, LEFT, RIGHT, OUT, ALIGNED>(args);  \
  }
#define STRATA_GEMM_LAYOUT(LAYOUT, LEFT, RIGHT)                                \
  STRATA_GEMM(gemm_##LAYOUT##_bf16, LEFT, RIGHT, strata::gpu::BF16, true)      \
  STRATA_GEMM(gemm_##LAYOUT##_f32, LEFT, RIGHT, float, true)                   \
  STRATA_GEMM(gemm_##LAYOUT##_any_bf16, LEFT, RIGHT, strata::gpu::BF16, false) \
  STRATA_GEMM(gemm_##LAYOUT##_any_f32, LEFT, RIGHT, float, false)
