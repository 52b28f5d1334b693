// What balances experts: sums of probabilities and counts, the auxiliary loss, the z-loss, biases. Sums over tokens are
// made of parts of kRouterPart tokens, which are added in order.
#include "kernels/gpu/args.h"
#include "kernels/gpu/args_experts.h"
#include "kernels/gpu/router.cuh"

#define STRATA_KERNEL(NAME, ARGS) \
  extern "C" __global__ void __launch_bounds__(256) NAME(const __grid_constant__ ARGS args)

namespace strata::gpu {

// A token's shares: scores divided by their sum.
struct TokenShares {
  TokenScores scores;
  float sum = 1.0f;

  __device__ __forceinline__ TokenShares(const float* row, int experts, bool sigmoid)
      : scores(row, experts, sigmoid) {
    if (!sigmoid) return;
    sum = 0.0f;
    for (int e = lane_of_thread(); e < experts; e += kWarp) sum += scores.at(e);
    sum = warp_sum(sum);
  }
};

__device__ __forceinline__ bool counts(const RouterSumsArgs& args, int64_t token) {
  return token % args.sequence < args.sequence - args.idle;
}

// One block per part; its warps share the work on tokens, then its threads the experts.
STRATA_KERNEL(router_sums_parts, RouterSumsArgs) {
  __shared__ float shifts[kRouterPart], factors[kRouterPart];
  const int group = static_cast<int>(blockIdx.x) / args.part_count,
            part = static_cast<int>(blockIdx.x) % args.part_count;
  const int64_t first = static_cast<int64_t>(group) * args.rows + part * kRouterPart;
  const int count = min(kRouterPart, args.rows - part * kRouterPart);
  const int warps = static_cast<int>(blockDim.x) / kWarp;
  for (int i = static_cast<int>(threadIdx.x) / kWarp; i < count; i += warps) {
    const TokenShares shares(args.logits + (first + i) * args.experts, args.experts, args.sigmoid != 0);
    if (lane_of_thread() == 0) {
      shifts[i] = shares.scores.shift;
      factors[i] = args.sigmoid != 0 ? 1.0f / shares.sum : shares.scores.factor;
    }
  }
  __syncthreads();
  float* const to = args.parts + static_cast<int64_t>(blockIdx.x) * 2 * args.experts;
  for (int e = static_cast<int>(threadIdx.x); e < args.experts; e += static_cast<int>(blockDim.x)) {
    float probability = 0.0f, chosen = 0.0f;
    for (int i = 0; i < count; ++i) {
      if (!counts(args, first + i)) continue;
      const float logit = args.logits[(first + i) * args.experts + e];
      const float score = args.sigmoid != 0 ? Logistic(logit).value : expf(logit - shifts[i]);
      probability = fmaf(score, factors[i], probability);
      const int32_t* const ids = args.ids + (first + i) * args.k;
      for (int s = 0; s < args.k; ++s) chosen += ids[s] == e ? 1.0f : 0.0f;
    }
    to[e] = probability;
    to[args.experts + e] = chosen;
  }
}

// A thread per group and expert.
STRATA_KERNEL(router_sums, RouterSumsArgs) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (at >= static_cast<int64_t>(args.groups) * args.experts) return;
  const float* const parts = args.parts + at / args.experts * args.part_count * 2 * args.experts;
  const int64_t e = at % args.experts;
  float probability = 0.0f, chosen = 0.0f;
#pragma unroll 4
  for (int64_t part = 0; part < args.part_count; ++part) {
    probability += parts[part * 2 * args.experts + e];
    chosen += parts[(part * 2 + 1) * args.experts + e];
  }
  args.probabilities[at] = probability;
  args.counts[at] = chosen;
}

// A warp per token.
STRATA_KERNEL(router_sums_gradient, RouterSumsArgs) {
  const int64_t token = warp_of_grid();
  if (token >= static_cast<int64_t>(args.groups) * args.rows) return;
  const TokenShares shares(args.logits + token * args.experts, args.experts, args.sigmoid != 0);
  const float* const given = args.dprobabilities + token / args.rows * args.experts;
  const bool counted = counts(args, token);
  float mean = 0.0f;
  for (int e = lane_of_thread(); e < args.experts; e += kWarp)
    mean = fmaf(shares.scores.at(e), given[e], mean);
  mean = warp_sum(mean) / shares.sum;
  float* const to = args.dlogits + token * args.experts;
  for (int e = lane_of_thread(); e < args.experts; e += kWarp) {
    const float logit = shares.scores.logits[e], of_share = (given[e] - mean) / shares.sum;
    const Logistic score(logit);
    const float slope = args.sigmoid != 0 ? score.value * score.rest : shares.scores.at(e);
    to[e] = counted ? of_share * slope : 0.0f;
  }
}

// What a group's counts are multiplied by, by a warp.
__device__ __forceinline__ double balance_factor(const BalanceArgs& args, int64_t group,
                                                 const float* counts_of) {
  int with_target = 0;
  for (int64_t i = group * args.rows + lane_of_thread(); i < (group + 1) * args.rows; i += kWarp)
    with_target += args.targets[i] >= 0 ? 1 : 0;
  double counted = 0.0;
  for (int e = lane_of_thread(); e < args.experts; e += kWarp) counted += static_cast<double>(counts_of[e]);
  with_target = warp_sum(with_target);
  counted = warp_sum(counted) / args.k;
  if (counted == 0.0) return 0.0;
  return args.coefficient * with_target * args.experts /
         (static_cast<double>(args.k) * args.tokens * counted);
}
__device__ __forceinline__ const float* counts_of_group(const BalanceArgs& args, int64_t group) {
  return args.counts + (args.same != 0 ? 0 : group * args.experts);
}

// The sum over the warps of a block, in order; thread 0 gets it.
__device__ __forceinline__ double sum_of_warps(double value) {
  __shared__ double shared[256 / kWarp];
  if (lane_of_thread() == 0) shared[threadIdx.x / kWarp] = value;
  __syncthreads();
  double sum = 0.0;
  if (threadIdx.x == 0) {
    for (int warp = 0; warp < static_cast<int>(blockDim.x) / kWarp; ++warp) sum += shared[warp];
  }
  return sum;
}

// One block; a warp takes every eighth group.
STRATA_KERNEL(balance_loss, BalanceArgs) {
  const int warps = static_cast<int>(blockDim.x) / kWarp;
  double sum = 0.0;
  for (int64_t group = threadIdx.x / kWarp; group < args.groups; group += warps) {
    const float* const counts = counts_of_group(args, group);
    double product = 0.0;
    for (int e = lane_of_thread(); e < args.experts; e += kWarp) {
      product +=
          static_cast<double>(counts[e]) * static_cast<double>(args.probabilities[group * args.experts + e]);
    }
    sum += balance_factor(args, group, counts) * warp_sum(product);
  }
  sum = sum_of_warps(sum);
  if (threadIdx.x == 0) *args.sum = (args.accumulate != 0 ? *args.sum : 0.0) + sum;
}

// A warp per group.
STRATA_KERNEL(balance_loss_gradient, BalanceArgs) {
  const int64_t group = warp_of_grid();
  if (group >= args.groups) return;
  const float* const counts = counts_of_group(args, group);
  const double factor = balance_factor(args, group, counts);
  for (int e = lane_of_thread(); e < args.experts; e += kWarp)
    args.dprobabilities[group * args.experts + e] =
        static_cast<float>(factor * static_cast<double>(counts[e]));
}

// How often a token counts in the z-loss, by a warp.
__device__ __forceinline__ double z_share(const RouterZArgs& args, int64_t token) {
  if (args.rows == 0) return args.targets[token] >= 0 ? 1.0 : 0.0;
  const int64_t own = args.targets_of_sequence, first = token / args.rows * own;
  int counted = 0;
  for (int64_t i = lane_of_thread(); i < own; i += kWarp) counted += args.targets[first + i] >= 0 ? 1 : 0;
  return static_cast<double>(warp_sum(counted)) / args.rows;
}

// One block per part; its eight warps take the tokens in turn.
STRATA_KERNEL(router_z_parts, RouterZArgs) {
  const int64_t end =
      min(static_cast<int64_t>(args.tokens), (static_cast<int64_t>(blockIdx.x) + 1) * kRouterPart);
  double sum = 0.0;
  for (int64_t token = static_cast<int64_t>(blockIdx.x) * kRouterPart + threadIdx.x / kWarp; token < end;
       token += blockDim.x / kWarp) {
    const double share = z_share(args, token);
    if (share == 0.0) continue;
    const auto z = static_cast<double>(log_sum_exp(args.logits + token * args.experts, args.experts));
    sum += share * z * z;
  }
  sum = sum_of_warps(sum);
  if (threadIdx.x == 0) args.parts[blockIdx.x] = sum;
}

// One warp.
STRATA_KERNEL(router_z_sum, RouterZArgs) {
  double sum = 0.0;
  for (int64_t part = threadIdx.x; part < args.part_count; part += kWarp) sum += args.parts[part];
  sum = args.coefficient * warp_sum(sum);
  if (threadIdx.x == 0) *args.sum = (args.accumulate != 0 ? *args.sum : 0.0) + sum;
}

// A warp per token.
STRATA_KERNEL(router_z_gradient, RouterZArgs) {
  const int64_t token = warp_of_grid();
  if (token >= args.tokens) return;
  const float* const row = args.logits + token * args.experts;
  const double share = z_share(args, token);
  const float z = log_sum_exp(row, args.experts);
  const float factor =
      share == 0.0 ? 0.0f : static_cast<float>(2.0 * share * args.coefficient * static_cast<double>(z));
  float* const to = args.dlogits + token * args.experts;
  for (int e = lane_of_thread(); e < args.experts; e += kWarp)
    to[e] = share == 0.0 ? 0.0f : factor * expf(row[e] - z);
}

// One block. In integers, since the mean may be fractional.
STRATA_KERNEL(router_bias_update, RouterBiasArgs) {
  if (static_cast<const GpuUpdateScalars*>(args.scalars)->skip != 0) return;
  __shared__ int64_t shared[256];
  const int thread = static_cast<int>(threadIdx.x);
  int64_t all = 0;
  for (int e = thread; e < args.experts; e += 256) all += args.loads[e];
  shared[thread] = all;
  for (int half = 128; half > 0; half /= 2) {
    __syncthreads();
    if (thread < half) shared[thread] += shared[thread + half];
  }
  __syncthreads();
  all = shared[0];
  const auto rate = static_cast<float>(args.rate);
  for (int e = thread; e < args.experts; e += 256) {
    const int64_t below = all - args.loads[e] * args.experts;
    args.bias[e] += below > 0 ? rate : below < 0 ? -rate : 0.0f;
  }
}

}  // namespace strata::gpu
