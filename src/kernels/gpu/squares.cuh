// Sums of squares of blocks of 65,536 elements, on their own or with a digest of the elements' bits: the same
// code, so that both have the same bits.
#pragma once

#include "kernels/gpu/args.h"
#include "kernels/gpu/vector.cuh"

namespace strata::gpu {

constexpr int64_t kNormBlock = 65536;  // elements per partial sum

// partials[blockIdx.x] = Σ x² of kNormBlock consecutive elements: each of 256 threads sums in fp32; threads are
// added in fp64. kDigest: digests[blockIdx.x] as in DigestArgs.
template <bool kDigest>
__device__ __forceinline__ void block_squares(double* partials, int64_t* digests, const float* x, int64_t n) {
  __shared__ double shared[256];
  __shared__ uint64_t shared_digests[kDigest ? 256 : 1];
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kNormBlock, end = min(n, first + kNormBlock);
  float sums[4] = {};
  uint64_t digest = 0;
  const auto take = [&](int64_t i, float value, float& sum) {
    sum = fmaf(value, value, sum);
    if constexpr (kDigest) {
      const auto place = static_cast<uint64_t>(i - first);
      digest += static_cast<uint64_t>(__float_as_uint(value)) * (2 * place + 1);
    }
  };
  if (aligned_to(x, 0, 4)) {
#pragma unroll 4
    for (int64_t i = first + thread * 4; i + 4 <= end; i += 1024) {
      float four[4];
      load(x + i, four);
#pragma unroll
      for (int k = 0; k < 4; ++k) take(i + k, four[k], sums[k]);
    }
    if (thread < (end - first) % 4) take(end - 1 - thread, x[end - 1 - thread], sums[0]);
  } else {
    for (int64_t i = first + thread; i < end; i += 256) take(i, x[i], sums[0]);
  }
  shared[thread] = (static_cast<double>(sums[0]) + sums[1]) + (static_cast<double>(sums[2]) + sums[3]);
  if constexpr (kDigest) shared_digests[thread] = digest;
  for (int half = 128; half > 0; half /= 2) {
    __syncthreads();
    if (thread >= half) continue;
    shared[thread] += shared[thread + half];
    if constexpr (kDigest) shared_digests[thread] += shared_digests[thread + half];
  }
  if (thread != 0) return;
  partials[blockIdx.x] = shared[0];
  if constexpr (kDigest) digests[blockIdx.x] = static_cast<int64_t>(shared_digests[0]);
}

}  // namespace strata::gpu
