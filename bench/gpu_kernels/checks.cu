// Random operands, and digests of results, for the benchmark.
#include "checks.h"
#include "kernels/gpu/vector.cuh"

namespace strata::gpu_bench {

using gpu::BF16;

template <typename T>
__device__ void fill(const FillArgs& args) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < args.n; i += step)
    static_cast<T*>(args.to)[i] =
        gpu::from_float<T>(random_value(static_cast<uint64_t>(i), args.seed) * args.scale);
}
extern "C" __global__ void fill_bf16(const __grid_constant__ FillArgs args) {
  fill<BF16>(args);
}
extern "C" __global__ void fill_f32(const __grid_constant__ FillArgs args) {
  fill<float>(args);
}
extern "C" __global__ void fill_ids(const __grid_constant__ FillArgs args) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < args.n; i += step)
    static_cast<int32_t*>(args.to)[i] =
        random_id(static_cast<uint64_t>(i), args.seed, static_cast<uint32_t>(args.scale));
}

// out[blockIdx.x] = {digest, number of non-finite elements} of the block's elements.
template <typename T>
__device__ void digest(const DigestArgs& args) {
  __shared__ uint64_t sums[256], bad[256];
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  uint64_t sum = 0, wrong = 0;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < args.n; i += step) {
    const T value = static_cast<const T*>(args.from)[i];
    const float f = gpu::to_float(value);
    if (!(f - f == 0.0f)) ++wrong;
    sum += (__float_as_uint(f) + 0x9e3779b97f4a7c15ull) * static_cast<uint64_t>(2 * i + 1);
  }
  sums[threadIdx.x] = sum, bad[threadIdx.x] = wrong;
  for (unsigned half = 128; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half)
      sums[threadIdx.x] += sums[threadIdx.x + half], bad[threadIdx.x] += bad[threadIdx.x + half];
  }
  if (threadIdx.x == 0) args.out[2 * blockIdx.x] = sums[0], args.out[2 * blockIdx.x + 1] = bad[0];
}
extern "C" __global__ void digest_bf16(const __grid_constant__ DigestArgs args) {
  digest<BF16>(args);
}
extern "C" __global__ void digest_f32(const __grid_constant__ DigestArgs args) {
  digest<float>(args);
}

}  // namespace strata::gpu_bench
