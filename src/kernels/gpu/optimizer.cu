// AdamW on fp32 master weights with bf16 copies, and the norm of gradients.
#include "kernels/gpu/squares.cuh"

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

__device__ __forceinline__ void adamw(const AdamWArgs& args) {
  __shared__ float factors[3];
  const GpuUpdateScalars& scalars = *args.scalars;
  if (scalars.skip != 0) return;
  if (threadIdx.x == 0) {
    const double rate = static_cast<double>(scalars.lr) * static_cast<double>(args.lr_scale);
    factors[0] = static_cast<float>(1.0 / sqrt(static_cast<double>(correction(args.beta2, scalars.update))));
    factors[1] = static_cast<float>(1.0 - rate * static_cast<double>(args.weight_decay));
    factors[2] = static_cast<float>(rate / static_cast<double>(correction(args.beta1, scalars.update)));
  }
  __syncthreads();
  const float share1 = static_cast<float>(1.0 - args.beta1), beta2 = static_cast<float>(args.beta2),
              share2 = static_cast<float>(1.0 - args.beta2), correction2 = factors[0], keep = factors[1],
              step = factors[2];
  constexpr int kCount = 4;
  const bool vectors = args.n % kCount == 0 && aligned_to(args.master, 0, 4) && aligned_to(args.m, 0, 4) &&
                       aligned_to(args.v, 0, 4) && aligned_to(args.grad, 0, 4) &&
                       aligned_to(static_cast<BF16*>(args.copy), 0, 4);
  const auto update = [&](int64_t i, auto count) {
    float p[count.value], m[count.value], v[count.value], g[count.value];
    load(args.grad + i, g);
    load(args.m + i, m);
    load(args.v + i, v);
    load(args.master + i, p);
#pragma unroll
    for (int k = 0; k < count.value; ++k) {
      const float gradient = g[k] * scalars.grad_scale;
      m[k] = fmaf(share1, gradient - m[k], m[k]);
      v[k] = fmaf(share2 * gradient, gradient, beta2 * v[k]);
      p[k] = fmaf(-step, m[k] / fmaf(sqrtf(v[k]), correction2, args.eps), p[k] * keep);
    }
    store(args.m + i, m);
    store(args.v + i, v);
    store(args.master + i, p);
    if (args.copy != nullptr) store(static_cast<BF16*>(args.copy) + i, p);
  };
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  if (vectors) {
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < args.n / kCount;
         i += stride)
      update(i * kCount, Count<kCount>{});
  } else {
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < args.n; i += stride)
      update(i, Count<1>{});
  }
}

// out = Σ partials. One block.
__device__ __forceinline__ void reduce(const ReduceArgs& args) {
  __shared__ double shared[256];
  const int thread = static_cast<int>(threadIdx.x);
  double sum = 0;
  for (int64_t i = thread; i < args.n; i += 256) sum += args.partials[i];
  shared[thread] = sum;
  for (int half = 128; half > 0; half /= 2) {
    __syncthreads();
    if (thread < half) shared[thread] += shared[thread + half];
  }
  if (thread == 0) *args.out = shared[0];
}

extern "C" __global__ void __launch_bounds__(256) adamw_update(const __grid_constant__ AdamWArgs args) {
  adamw(args);
}
extern "C" __global__ void __launch_bounds__(256) sum_of_squares(const __grid_constant__ SquaresArgs args) {
  block_squares<false>(args.partials, nullptr, args.x, args.n);
}
extern "C" __global__ void __launch_bounds__(256) reduce_sum(const __grid_constant__ ReduceArgs args) {
  reduce(args);
}

}  // namespace strata::gpu
