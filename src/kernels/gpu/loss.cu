// Cross entropy of rows of logits, one block per row: one pass for the sum of exponentials, another for the
// gradient.
#include "kernels/gpu/args.h"
#include "kernels/gpu/rows.cuh"

namespace strata::gpu {

// The capped logit, and the cap's slope.
template <bool kCapped>
struct Cap {
  float softcap;
  __device__ __forceinline__ float operator()(float logit) const {
    return kCapped ? softcap * (1.0f - 2.0f / (exp_fast(2.0f * logit / softcap) + 1.0f)) : logit;
  }
  __device__ __forceinline__ float slope(float capped) const {
    const float bend = kCapped ? capped / softcap : 0.0f;
    return 1.0f - bend * bend;
  }
};

template <typename T, typename Gradient, int kCount, bool kCapped>
__device__ __forceinline__ void cross_entropy(const CrossEntropyArgs& args) {
  __shared__ float shared[2][kMostWarps];
  const int64_t row = blockIdx.x;
  const T* const logits = static_cast<const T*>(args.logits) + row * args.stride;
  Gradient* const gradient = static_cast<Gradient*>(args.gradient) + row * args.stride;
  const int32_t target = args.targets[row];
  const int step = static_cast<int>(blockDim.x) * kCount, first = static_cast<int>(threadIdx.x) * kCount;
  const Cap<kCapped> cap{args.softcap};
  float lse = 0.0f;
  if (target >= 0) {
    // This thread's maximum so far, and the sum of exponentials relative to it.
    float most[1] = {-INFINITY}, sum[1] = {};
#pragma unroll 4
    for (int c = first; c < args.valid; c += step) {
      float l[kCount];
      load(logits + c, l);
      float high = most[0];
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        l[i] = c + i < args.valid ? cap(l[i]) : -INFINITY;
        high = fmaxf(high, l[i]);
      }
      sum[0] *= exp2_fast((most[0] - high) * 1.44269504f);
      most[0] = high;
#pragma unroll
      for (int i = 0; i < kCount; ++i) sum[0] += exp2_fast((l[i] - high) * 1.44269504f);
    }
    const float own = most[0];
    reduce_block<Greatest>(most, shared[0]);
    if (own == -INFINITY) {
      sum[0] = 0.0f;
    } else {
      sum[0] *= exp2_fast((own - most[0]) * 1.44269504f);
    }
    reduce_block<Sum>(sum, shared[1]);
    lse = most[0] + logf(sum[0]);
    if (threadIdx.x == 0) args.losses[row] = lse - cap(to_float(logits[target])) + args.z_loss * lse * lse;
    if (args.lse != nullptr && threadIdx.x == 0) args.lse[row] = lse;
    if (args.greedy != nullptr && threadIdx.x == 0)
      args.greedy[row] = cap(to_float(logits[target])) >= most[0] ? 1 : 0;
  } else if (threadIdx.x == 0) {
    args.losses[row] = 0.0f;
    if (args.lse != nullptr) args.lse[row] = 0.0f;
    if (args.greedy != nullptr) args.greedy[row] = 0;
  }
  if (args.gradient == nullptr) return;
  // All threads have read the target's logit before any overwrites it.
  __syncthreads();
  const float scale = target >= 0 ? args.grad_scale * (args.scale != nullptr ? *args.scale : 1.0f) : 0.0f;
  const float factor = scale * fmaf(2.0f * args.z_loss, lse, 1.0f);
  // Loads several vectors before storing, since the gradient may replace the logits.
  constexpr int kAtOnce = 4;
  for (int begin = first; begin < args.vocab; begin += kAtOnce * step) {
    float l[kAtOnce][kCount] = {};
#pragma unroll
    for (int p = 0; p < kAtOnce; ++p) {
      const int c = begin + p * step;
      if (target >= 0 && c < args.vocab) load(logits + c, l[p]);
    }
#pragma unroll
    for (int p = 0; p < kAtOnce; ++p) {
      const int c = begin + p * step;
      if (c >= args.vocab) break;
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        const float capped = cap(l[p][i]);
        float d = factor * exp2_fast((capped - lse) * 1.44269504f) - (c + i == target ? scale : 0.0f);
        if constexpr (kCapped) d *= cap.slope(capped);
        l[p][i] = target >= 0 && c + i < args.valid ? d : 0.0f;
      }
      store(gradient + c, l[p]);
    }
  }
}

// sum (+)= Σ losses in fp64, count (+)= tokens with a target. One block.
__device__ __forceinline__ void sum_losses(const LossSumArgs& args) {
  __shared__ double sums[1024];
  __shared__ int counts[1024];
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  double sum = 0;
  int count = 0;
  for (int i = thread; i < args.tokens; i += threads) {
    if (args.targets[i] >= 0) sum += static_cast<double>(args.losses[i]), ++count;
  }
  sums[thread] = sum;
  counts[thread] = count;
  for (int half = threads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (thread < half) sums[thread] += sums[thread + half], counts[thread] += counts[thread + half];
  }
  if (thread == 0) {
    *args.sum = (args.accumulate != 0 ? *args.sum : 0.0) + sums[0];
    *args.count = (args.accumulate != 0 ? *args.count : 0) + counts[0];
  }
}

#define STRATA_LOSS(NAME, T, GRADIENT, COUNT)                                                              \
  extern "C" __global__ void __launch_bounds__(1024) NAME(const __grid_constant__ CrossEntropyArgs args) { \
    if (args.softcap > 0.0f) {                                                                             \
      cross_entropy<T, GRADIENT, COUNT, true>(args);                                                       \
    } else {                                                                                               \
      cross_entropy<T, GRADIENT, COUNT, false>(args);                                                      \
    }                                                                                                      \
  }
STRATA_LOSS(cross_entropy_bf16_bf16, BF16, BF16, 8)
STRATA_LOSS(cross_entropy_f32_bf16, float, BF16, 8)
STRATA_LOSS(cross_entropy_f32_f32, float, float, 4)
STRATA_LOSS(cross_entropy_bf16_bf16_any, BF16, BF16, 1)
STRATA_LOSS(cross_entropy_f32_bf16_any, float, BF16, 1)
STRATA_LOSS(cross_entropy_f32_f32_any, float, float, 1)
extern "C" __global__ void __launch_bounds__(1024) loss_sum(const __grid_constant__ LossSumArgs args) {
  sum_losses(args);
}

}  // namespace strata::gpu
