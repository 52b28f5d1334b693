// fp32 GEMM by fused multiply–add: a block of 256 threads computes 128 × 128 of c in depth steps of 16; each
// thread computes 8 × 8.
#include "kernels/gpu/args.h"
#include "kernels/gpu/vector.cuh"

namespace strata::gpu {

constexpr int kTile = 128, kStep = 16, kPitch = kTile + 4;

// Loads a tile [depth][outer] into shared memory; zero outside the matrix. A thread carries 8 elements from
// one step to the next.
template <bool kDepthInner>
struct PlainOperand {
  const float* matrix;
  int64_t stride;
  int outer0, outer, depth;
  bool vectors;
  float held[8];

  __device__ PlainOperand(const void* from, int64_t stride_, int first, int outer_, int depth_)
      : matrix(static_cast<const float*>(from)),
        stride(stride_),
        outer0(first),
        outer(outer_),
        depth(depth_),
        vectors(aligned_to(static_cast<const float*>(from), stride_, 4)) {}

  __device__ __forceinline__ void fetch(int k0) {
    const int thread = static_cast<int>(threadIdx.x);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float four[4] = {};
      // Four elements along the inner axis.
      const int o = outer0 + (kDepthInner ? thread / 4 + half * 64 : thread % 32 * 4);
      const int k = k0 + (kDepthInner ? thread % 4 * 4 : thread / 32 + half * 8);
      const float* at = matrix + (kDepthInner ? o * stride + k : k * stride + o);
      const int left = kDepthInner ? depth - k : outer - o;
      if ((kDepthInner ? o < outer : k < depth) && left > 0) {
        if (vectors && left >= 4) {
          load(at, four);
        } else {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            if (i < left) four[i] = at[i];
          }
        }
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) held[half * 4 + i] = four[i];
    }
  }
  __device__ __forceinline__ void keep(float* tile) const {
    const int thread = static_cast<int>(threadIdx.x);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if constexpr (kDepthInner) {
        const int o = thread / 4 + half * 64, k = thread % 4 * 4;
#pragma unroll
        for (int i = 0; i < 4; ++i) tile[(k + i) * kPitch + o] = held[half * 4 + i];
      } else {
        const float four[4] = {held[half * 4], held[half * 4 + 1], held[half * 4 + 2], held[half * 4 + 3]};
        store(tile + (thread / 32 + half * 8) * kPitch + thread % 32 * 4, four);
      }
    }
  }
};

template <bool kLeftInner, bool kRightInner>
__device__ __forceinline__ void gemm_plain(const GemmArgs& args) {
  __shared__ __align__(16) float left[2][kStep * kPitch];
  __shared__ __align__(16) float right[2][kStep * kPitch];
  const int tiles_m = (args.m + kTile - 1) / kTile, block = static_cast<int>(blockIdx.x);
  const int row0 = block % tiles_m * kTile, column0 = block / tiles_m * kTile;
  PlainOperand<kLeftInner> a(args.a, args.a_stride, row0, args.m, args.k);
  PlainOperand<kRightInner> b(args.b, args.b_stride, column0, args.n, args.k);
  // A thread has rows r to r + 3 and r + 64 to r + 67, and columns likewise.
  const int r = static_cast<int>(threadIdx.x) / 16 * 4, c = static_cast<int>(threadIdx.x) % 16 * 4;
  float sum[8][8] = {};
  const int steps = (args.k + kStep - 1) / kStep;
  a.fetch(0);
  b.fetch(0);
  for (int step = 0; step < steps; ++step) {
    const int buffer = step % 2;
    a.keep(left[buffer]);
    b.keep(right[buffer]);
    __syncthreads();
    if (step + 1 < steps) {
      a.fetch((step + 1) * kStep);
      b.fetch((step + 1) * kStep);
    }
#pragma unroll
    for (int k = 0; k < kStep; ++k) {
      float x[8], y[8];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float four[4];
        load(&left[buffer][k * kPitch + r + half * 64], four);
#pragma unroll
        for (int i = 0; i < 4; ++i) x[half * 4 + i] = four[i];
        load(&right[buffer][k * kPitch + c + half * 64], four);
#pragma unroll
        for (int i = 0; i < 4; ++i) y[half * 4 + i] = four[i];
      }
#pragma unroll
      for (int i = 0; i < 8; ++i) {
#pragma unroll
        for (int j = 0; j < 8; ++j) sum[i][j] = fmaf(x[i], y[j], sum[i][j]);
      }
    }
  }
  float* out = static_cast<float*>(args.c);
  const bool vectors = aligned_to(out, args.c_stride, 4);
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int row = row0 + r + i / 4 * 64 + i % 4;
    if (row >= args.m) continue;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int column = column0 + c + half * 64, count = min(4, args.n - column);
      float* to = out + row * args.c_stride + column;
      float four[4] = {sum[i][half * 4], sum[i][half * 4 + 1], sum[i][half * 4 + 2], sum[i][half * 4 + 3]};
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if (j >= count) continue;
        if (args.bias != nullptr) four[j] += args.bias[column + j];
        if (args.accumulate != 0) four[j] += to[j];
        if (!vectors || count < 4) to[j] = four[j];
      }
      if (vectors && count >= 4) store(to, four);
    }
  }
}

}  // namespace strata::gpu

extern "C" __global__ void __launch_bounds__(256)
    gemm_f32_nt(const __grid_constant__ strata::gpu::GemmArgs args) {
  strata::gpu::gemm_plain<true, true>(args);
}
extern "C" __global__ void __launch_bounds__(256)
    gemm_f32_nn(const __grid_constant__ strata::gpu::GemmArgs args) {
  strata::gpu::gemm_plain<true, false>(args);
}
extern "C" __global__ void __launch_bounds__(256)
    gemm_f32_tn(const __grid_constant__ strata::gpu::GemmArgs args) {
  strata::gpu::gemm_plain<false, false>(args);
}
