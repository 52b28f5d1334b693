// Sums and extremes over the threads of a block, in an order that depends only on the number of threads.
#pragma once

#include "kernels/gpu/vector.cuh"

namespace strata::gpu {

constexpr int kMostWarps = 32;

struct Sum {
  static constexpr float kNeutral = 0.0f;
  static __device__ __forceinline__ float of(float a, float b) { return a + b; }
};
struct Greatest {
  static constexpr float kNeutral = -INFINITY;
  static __device__ __forceinline__ float of(float a, float b) { return fmaxf(a, b); }
};

// Reduces each of kCount values over all threads; every thread gets the result. The block has whole warps;
// `shared` has kMostWarps · kCount elements and may be reused after the next __syncthreads.
template <typename Op, int kCount>
__device__ __forceinline__ void reduce_block(float (&values)[kCount], float* shared) {
  const int warps = static_cast<int>(blockDim.x) / kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    for (int mask = kWarp / 2; mask > 0; mask /= 2)
      values[i] = Op::of(values[i], shuffle_xor(values[i], mask));
  }
  if (warps == 1) return;
  if (threadIdx.x % kWarp == 0) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) shared[i * kMostWarps + warp] = values[i];
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    values[i] = lane < warps ? shared[i * kMostWarps + lane] : Op::kNeutral;
    for (int mask = kWarp / 2; mask > 0; mask /= 2)
      values[i] = Op::of(values[i], shuffle_xor(values[i], mask));
  }
}

// Elements of a row per thread: kHeld, in vectors of kCount that are blockDim · kCount apart. Elements beyond
// the row are 0.
constexpr int kHeld = 32;
template <int kCount, typename Body>
__device__ __forceinline__ void for_vectors(int dim, const Body& body) {
#pragma unroll
  for (int i = 0; i < kHeld / kCount; ++i) {
    const int column = (i * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x)) * kCount;
    if (column < dim) body(i * kCount, column);
  }
}
template <int kCount, typename T>
__device__ __forceinline__ void load_row(const T* row, int dim, float (&held)[kHeld]) {
#pragma unroll
  for (int i = 0; i < kHeld; ++i) held[i] = 0.0f;
  for_vectors<kCount>(dim, [&](int at, int column) {
    float vec[kCount];
    load(row + column, vec);
#pragma unroll
    for (int i = 0; i < kCount; ++i) held[at + i] = vec[i];
  });
}

}  // namespace strata::gpu
