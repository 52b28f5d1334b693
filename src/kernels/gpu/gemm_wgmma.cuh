// bf16 GEMM for sm_90a: persistent blocks process tiles of c. One warpgroup of a block loads stages of the
// operands with TMA; two compute 64 × 256 of the tile each. The blocks of a cluster have tiles below one
// another and share the loads of b. The order of every sum depends only on the shape.
#pragma once

#include "kernels/gpu/gemm.cuh"
#include "kernels/gpu/hopper.cuh"

namespace strata::gpu {

constexpr int kWideM = 128, kWideN = 256, kWideStages = 4;
constexpr int kWideStageA = kWideM * kGemmDepth * 2,
              kWideStage = kWideStageA + kWideN * kGemmDepth * 2;  // bytes
constexpr int kWideThreads = 3 * kWarpgroup, kBox = 8192;          // bytes of 64 × 64

// The next stage of a ring, and its parity.
struct Ring {
  int stage = 0, parity = 0;
  __device__ __forceinline__ void next() {
    if (++stage == kWideStages) stage = 0, parity ^= 1;
  }
};

// Rows [outer, outer + 128) of an operand (columns if the depth is not inner) and 64 steps of the depth.
template <bool kInner, typename Copy>
__device__ __forceinline__ void copy_half(const Copy& copy, uint32_t to, int outer, int depth) {
  if constexpr (kInner) {
    copy(to, outer, depth);
  } else {
    copy(to, depth, outer);
    copy(to + kBox, depth, outer + 64);
  }
}

template <bool kLeftInner, bool kRightInner, typename Out, int kCluster>
__device__ __forceinline__ void gemm_wgmma(const GemmMapsArgs& maps) {
  extern __shared__ __align__(1024) uint8_t shared[];
  const GemmArgs& args = maps.gemm;
  const uint32_t tiles = shared_address(shared), full = tiles + kWideStages * kWideStage,
                 empty = full + kWideStages * 8;
  const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % kWarp;
  const uint32_t rank = kCluster > 1 ? rank_in_cluster() : 0;
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < kWideStages; ++stage) {
      barrier_init(full + stage * 8, 1);
      barrier_init(empty + stage * 8, kCluster * 2 * kWarpgroup / kWarp);
    }
    barriers_ready();
    prefetch_map(maps.a);
    prefetch_map(maps.b);
  }
  if constexpr (kCluster > 1) {
    synchronize_cluster();
  } else {
    __syncthreads();
  }

  const int groups_m = (args.m + kCluster * kWideM - 1) / (kCluster * kWideM),
            tiles_n = (args.n + kWideN - 1) / kWideN;
  const int count = groups_m * tiles_n;
  // Calls body(row of the block's tile, column, part, first and last + 1 of the depth) for each of the
  // cluster's tiles.
  const auto for_tiles = [&](const auto& body) {
    for (int index = static_cast<int>(blockIdx.x) / kCluster; index < count * args.splits;
         index += static_cast<int>(gridDim.x) / kCluster) {
      const int part = index / count, begin = part * args.split_depth;
      int m, n;
      tile_of<16 / kCluster>(index - part * count, groups_m, tiles_n, &m, &n);
      body((m * kCluster + static_cast<int>(rank)) * kWideM, n * kWideN, part, begin,
           min(args.k, begin + args.split_depth));
    }
  };

  Ring ring;
  if (warp < kWarpgroup / kWarp) {
    give_registers<40>();
    if (threadIdx.x == 0) {
      for_tiles([&](int row, int column, int, int begin, int end) {
        for (int depth = begin; depth < end; depth += kGemmDepth, ring.next()) {
          const uint32_t to = tiles + ring.stage * kWideStage, barrier = full + ring.stage * 8;
          barrier_wait(empty + ring.stage * 8, ring.parity ^ 1);
          barrier_expect(barrier, kWideStage);
          copy_half<kLeftInner>([&](uint32_t at, int y, int x) { copy_box(at, maps.a, y, x, barrier); }, to,
                                row, depth);
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const uint32_t to_b = to + kWideStageA + half * 2 * kBox;
            if constexpr (kCluster == 1) {
              copy_half<kRightInner>([&](uint32_t at, int y, int x) { copy_box(at, maps.b, y, x, barrier); },
                                     to_b, column + half * 128, depth);
            } else if (half == static_cast<int>(rank)) {
              copy_half<kRightInner>(
                  [&](uint32_t at, int y, int x) { copy_box(at, maps.b, y, x, barrier, 3); }, to_b,
                  column + half * 128, depth);
            }
          }
        }
      });
    }
  } else {
    take_registers<232>();
    const int group = warp / (kWarpgroup / kWarp) - 1;
    const auto release = [&](int stage) {
      if (lane < kCluster) barrier_arrive(empty + stage * 8, static_cast<uint32_t>(lane));
    };
    for_tiles([&](int row, int column, int part, int begin, int end) {
      float sum[32][4];
      int last = -1;
      for (int depth = begin; depth < end; depth += kGemmDepth, ring.next()) {
        const uint32_t at = tiles + ring.stage * kWideStage;
        uint64_t a = operand<kLeftInner>(at + group * kBox, kBox),
                 b = operand<kRightInner>(at + kWideStageA, kBox);
        barrier_wait(full + ring.stage * 8, ring.parity);
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < kGemmDepth / 16; ++k) {
          multiply_async<kLeftInner, kRightInner>(sum, a, b, k > 0 || depth > begin);
          a += kNextDepth<kLeftInner>, b += kNextDepth<kRightInner>;
        }
        wgmma_commit();
        // The previous step's matmuls have read their stage.
        wgmma_wait<1>();
        if (last >= 0) release(last);
        last = ring.stage;
      }
      wgmma_wait<0>();
      settle(sum);
      release(last);
      const GemmOutput<Out> out(args, part);
#pragma unroll
      for (int half = 0; half < 2; ++half)
        out.template put_row<kWideN>(row + group * 64 + warp % 4 * 16 + half * 8, column, sum, half);
    });
  }
  // No block may exit before the others have signaled its barriers and filled its memory.
  if constexpr (kCluster > 1) {
    __syncwarp();
    synchronize_cluster();
  }
}

}  // namespace strata::gpu

#define STRATA_WGMMA(NAME, LEFT, RIGHT, OUT, CLUSTER)                                                        \
  extern "C" __global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(strata::gpu::kWideThreads, 1) \
      NAME(const __grid_constant__ strata::gpu::GemmMapsArgs args) {                                         \
    strata::gpu::gemm_wgmma<LEFT, RIGHT, OUT, CLUSTER>(args);                                                \
  }
#define STRATA_WGMMA_LAYOUT(LAYOUT, LEFT, RIGHT)                              \
  STRATA_WGMMA(gemm_wgmma_##LAYOUT##_bf16, LEFT, RIGHT, strata::gpu::BF16, 2) \
  STRATA_WGMMA(gemm_wgmma_##LAYOUT##_f32, LEFT, RIGHT, float, 2)
