// A warp per item: its lanes, and sums and extremes over them, which every lane gets.
#pragma once

#include "kernels/gpu/intrinsics.cuh"

namespace strata::gpu {

__device__ __forceinline__ int lane_of_thread() {
  return static_cast<int>(threadIdx.x) % kWarp;
}
// The number of this thread's warp in the grid.
__device__ __forceinline__ int64_t warp_of_grid() {
  return (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / kWarp;
}

template <typename T>
__device__ __forceinline__ T warp_sum(T value) {
  for (int mask = kWarp / 2; mask > 0; mask /= 2) value += shuffle_xor(value, mask);
  return value;
}
// NaN is left out.
__device__ __forceinline__ float warp_greatest(float value) {
  for (int mask = kWarp / 2; mask > 0; mask /= 2) value = fmaxf(value, shuffle_xor(value, mask));
  return value;
}

}  // namespace strata::gpu
