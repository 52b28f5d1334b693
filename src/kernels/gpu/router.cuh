// A token's scores of experts, by the lanes of a warp.
#pragma once

#include "kernels/gpu/warp.cuh"

namespace strata::gpu {

// The logistic function, which does not overflow, and 1 minus it.
struct Logistic {
  float value, rest;
  __device__ __forceinline__ explicit Logistic(float x) {
    const float e = expf(-(x > 87.0f ? 87.0f : x < -87.0f ? -87.0f : x));  // NaN stays
    value = 1.0f / (1.0f + e);
    rest = e * value;
  }
};

__device__ __forceinline__ float greatest_of(const float* x, int count) {
  float greatest = -INFINITY;
  for (int i = lane_of_thread(); i < count; i += kWarp) greatest = fmaxf(greatest, x[i]);
  return warp_greatest(greatest);
}
// log Σ exp x
__device__ __forceinline__ float log_sum_exp(const float* x, int count) {
  const float greatest = greatest_of(x, count);
  float sum = 0.0f;
  for (int i = lane_of_thread(); i < count; i += kWarp) sum += expf(x[i] - greatest);
  return greatest + logf(warp_sum(sum));
}

// Softmax or logistic scores. All are NaN if a logit of a softmax is NaN or too large.
struct TokenScores {
  const float* logits;
  int experts;
  bool sigmoid;
  float shift = 0.0f, factor = 1.0f;

  __device__ __forceinline__ TokenScores(const float* row, int count, bool by_logistic)
      : logits(row), experts(count), sigmoid(by_logistic) {
    if (sigmoid) return;
    shift = greatest_of(row, count);
    float sum = 0.0f;
    for (int e = lane_of_thread(); e < count; e += kWarp) sum += expf(row[e] - shift);
    factor = 1.0f / warp_sum(sum);
  }
  __device__ __forceinline__ float at(int e) const {
    return sigmoid ? Logistic(logits[e]).value : expf(logits[e] - shift) * factor;
  }
  // 0, or NaN if a logit is not finite.
  __device__ __forceinline__ float poison() const {
    float sum = 0.0f;
    for (int e = lane_of_thread(); e < experts; e += kWarp) sum += logits[e] * 0.0f;
    return warp_sum(sum);
  }
  // The logits' gradient from the scores': `given(e)`, of which a softmax needs `mean` = Σ score · given.
  template <typename Given>
  __device__ __forceinline__ void through(float* dlogits, float mean, const Given& given) const {
    for (int e = lane_of_thread(); e < experts; e += kWarp) {
      const float d = given(e);
      if (sigmoid) {
        const Logistic score(logits[e]);
        dlogits[e] = d * (score.value * score.rest);
      } else {
        dlogits[e] = at(e) * (d - mean);
      }
    }
  }
};

}  // namespace strata::gpu
