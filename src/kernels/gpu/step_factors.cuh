// Shared by updates of optimizers: factors of a step, and loops over elements.
#pragma once

#include "kernels/gpu/args.h"
#include "kernels/gpu/rows.cuh"

namespace strata::gpu {

// 1 - beta^t, by repeated squaring in fp64.
__device__ __forceinline__ float correction(double beta, int64_t t) {
  double power = 1, factor = beta;
  for (uint64_t n = static_cast<uint64_t>(t < 1 ? 1 : t); n > 0; n >>= 1) {
    if ((n & 1) != 0) power *= factor;
    factor *= factor;
  }
  return static_cast<float>(1 - power);
}

// p = keep · p - step · direction
struct Rate {
  float step, keep;
  __device__ __forceinline__ Rate(const GpuUpdateScalars& scalars, float lr_scale, float weight_decay) {
    const double rate = static_cast<double>(scalars.lr) * static_cast<double>(lr_scale);
    step = static_cast<float>(rate);
    keep = static_cast<float>(1.0 - rate * static_cast<double>(weight_decay));
  }
};

// The same of AdamW, whose step corrects m, computed by one thread of the block.
struct AdamWFactors {
  float step, keep, of_root_v;
  __device__ __forceinline__ AdamWFactors(const GpuUpdateScalars& scalars, double beta1, double beta2,
                                          float lr_scale, float weight_decay) {
    __shared__ float factors[3];
    if (threadIdx.x == 0) {
      const double rate = static_cast<double>(scalars.lr) * static_cast<double>(lr_scale);
      factors[0] = static_cast<float>(1.0 / sqrt(static_cast<double>(correction(beta2, scalars.update))));
      factors[1] = static_cast<float>(1.0 - rate * static_cast<double>(weight_decay));
      factors[2] = static_cast<float>(rate / static_cast<double>(correction(beta1, scalars.update)));
    }
    __syncthreads();
    of_root_v = factors[0], keep = factors[1], step = factors[2];
  }
};

// Calls body(i, count) for all of n elements, four at a time where `vectors`; threads take turns over the grid.
template <typename Body>
__device__ __forceinline__ void for_grid(int64_t n, bool vectors, const Body& body) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x,
                first = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (vectors && n % 4 == 0) {
    for (int64_t i = first; i < n / 4; i += stride) body(i * 4, Count<4>{});
  } else {
    for (int64_t i = first; i < n; i += stride) body(i, Count<1>{});
  }
}
// Whether vectors of four may be read at all of these.
template <typename... T>
__device__ __forceinline__ bool fours(const T*... pointers) {
  return (... && aligned_to(pointers, 0, 4));
}

}  // namespace strata::gpu
