// AdamW on fp32 master weights with bf16 copies, and the norm of gradients.
#include "kernels/gpu/squares.cuh"
#include "kernels/gpu/step_factors.cuh"

namespace strata::gpu {

__device__ __forceinline__ void adamw(const ElementUpdateArgs& args) {
  const GpuUpdateScalars& scalars = *args.scalars;
  if (scalars.skip != 0) return;
  const AdamWFactors factors(scalars, args.beta1, args.beta2, args.lr_scale, args.weight_decay);
  const float share1 = static_cast<float>(1.0 - args.beta1), beta2 = static_cast<float>(args.beta2),
              share2 = static_cast<float>(1.0 - args.beta2);
  BF16* const copy = static_cast<BF16*>(args.copy);
  for_grid(args.n, fours(args.master, args.m, args.v, args.grad, copy), [&](int64_t i, auto count) {
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
      p[k] = fmaf(-factors.step, m[k] / fmaf(sqrtf(v[k]), factors.of_root_v, args.eps), p[k] * factors.keep);
    }
    store(args.m + i, m);
    store(args.v + i, v);
    store(args.master + i, p);
    if (copy != nullptr) store(copy + i, p);
  });
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

extern "C" __global__ void __launch_bounds__(256)
    adamw_update(const __grid_constant__ ElementUpdateArgs args) {
  adamw(args);
}
extern "C" __global__ void __launch_bounds__(256) sum_of_squares(const __grid_constant__ SquaresArgs args) {
  block_squares<false>(args.partials, nullptr, args.x, args.n);
}
extern "C" __global__ void __launch_bounds__(256) reduce_sum(const __grid_constant__ ReduceArgs args) {
  reduce(args);
}

}  // namespace strata::gpu
