// The split form of cross entropy (src/ops/loss): statistics of each part of the vocabulary, losses from them, and the
// gradient of logits; further targets and the weights of further losses.
#include "kernels/gpu/args_loss.h"
#include "kernels/gpu/rows.cuh"

namespace strata::gpu {

// A part of a row's logits.
struct PartOfRow {
  int64_t row;                      // of logits
  int64_t at;                       // of statistics, dstatistics: its three numbers
  int part, target, valid, column;  // target: its token, or -1; column: the target's in the part, or -1
  const float* logits;
  float softcap;

  __device__ __forceinline__ explicit PartOfRow(const SplitLossArgs& args)
      : row(blockIdx.x), part(static_cast<int>(blockIdx.y)), softcap(args.softcap) {
    at = (part * args.tokens + row) * 3;
    target = args.targets[row];
    const int start = args.starts != nullptr ? args.starts[part] : 0;
    valid = max(0, min(args.vocabulary - start, args.columns));
    column = target - start;
    if (target < 0 || column < 0 || column >= valid) column = -1;
    logits = args.logits + row * args.stride + static_cast<int64_t>(part) * args.columns;
  }
  __device__ __forceinline__ float capped(int i) const {
    return softcap > 0.0f ? softcap * tanhf(logits[i] / softcap) : logits[i];
  }
};

// The greatest capped logit, and its first column; every thread gets them. `shared` holds 2 · kMostWarps words.
struct GreatestOf {
  float value;
  int column;
};
__device__ __forceinline__ GreatestOf greatest_of(const PartOfRow& part, float* shared) {
  GreatestOf best{-INFINITY, part.valid};
  const auto take = [&](float value, int column) {
    if (value > best.value || (value == best.value && column < best.column)) best = {value, column};
  };
  for (int i = static_cast<int>(threadIdx.x); i < part.valid; i += static_cast<int>(blockDim.x))
    take(part.capped(i), i);
  for (int mask = kWarp / 2; mask > 0; mask /= 2) {
    const float value = shuffle_xor(best.value, mask);
    take(value, shuffle_xor(best.column, mask));
  }
  int* const columns = reinterpret_cast<int*>(shared + kMostWarps);
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  if (threadIdx.x % kWarp == 0) shared[warp] = best.value, columns[warp] = best.column;
  __syncthreads();
  for (int i = 0; i < static_cast<int>(blockDim.x) / kWarp; ++i) take(shared[i], columns[i]);
  return best;
}

// One block per row and part.
__device__ __forceinline__ void statistics_of_part(const SplitLossArgs& args) {
  __shared__ float shared[2 * kMostWarps], sums[kMostWarps];
  const PartOfRow part(args);
  float* const to = args.statistics + part.at;
  if (part.target < 0) {
    if (threadIdx.x < 3) to[threadIdx.x] = 0.0f;
    return;
  }
  const float most = greatest_of(part, shared).value;
  float sum[1] = {};
  for (int i = static_cast<int>(threadIdx.x); i < part.valid; i += static_cast<int>(blockDim.x))
    sum[0] += expf(part.capped(i) - most);
  reduce_block<Sum>(sum, sums);
  if (threadIdx.x == 0) {
    to[0] = most;
    to[1] = sum[0];
    to[2] = part.column >= 0 ? part.capped(part.column) : -INFINITY;
  }
}

// The gradient of a row's logits in a part, from that of its statistics: the sum is relative to the greatest logit.
template <typename Gradient>
__device__ __forceinline__ void gradient_of_part(const SplitLossArgs& args) {
  __shared__ float shared[2 * kMostWarps];
  const PartOfRow part(args);
  Gradient* const to = static_cast<Gradient*>(args.gradient) + part.row * args.stride +
                       static_cast<int64_t>(part.part) * args.columns;
  float most = 0.0f, of_most = 0.0f, of_sum = 0.0f, of_target = 0.0f;
  int greatest = -1;
  if (part.target >= 0 && part.valid > 0) {
    const float* const given = args.dstatistics + part.at;
    of_sum = given[1];
    most = args.statistics[part.at];
    of_most = given[0] - args.statistics[part.at + 1] * of_sum;
    of_target = given[2];
    greatest = greatest_of(part, shared).column;
  }
  // All threads have read the logits before any overwrites them.
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < args.columns; i += static_cast<int>(blockDim.x)) {
    float d = 0.0f;
    if (part.target >= 0 && i < part.valid) {
      const float logit = part.capped(i), bend = part.softcap > 0.0f ? logit / part.softcap : 0.0f;
      d = expf(logit - most) * of_sum + (i == greatest ? of_most : 0.0f) +
          (i == part.column ? of_target : 0.0f);
      d *= 1.0f - bend * bend;
    }
    to[i] = from_float<Gradient>(d);
  }
}

// The statistics of a token, over all parts.
struct Reduced {
  float most = -INFINITY, sum = 0.0f, target = -INFINITY;
  __device__ __forceinline__ Reduced(const LossOfStatisticsArgs& args, int token) {
    const auto at = [&](int part) {
      return args.statistics + (static_cast<int64_t>(part) * args.tokens + token) * 3;
    };
    for (int p = 0; p < args.parts; ++p) most = fmaxf(most, at(p)[0]), target = fmaxf(target, at(p)[2]);
    for (int p = 0; p < args.parts; ++p) sum += at(p)[1] * expf(at(p)[0] - most);
  }
};

// A thread per token.
__device__ __forceinline__ void losses_of_statistics(const LossOfStatisticsArgs& args) {
  const int token = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (token >= args.tokens) return;
  const bool counts = args.targets[token] >= 0;
  float loss = 0.0f;
  int greedy = 0;
  if (counts) {
    const Reduced all(args, token);
    loss = all.most + logf(all.sum) - all.target;
    greedy = all.target == all.most ? 1 : 0;
  }
  args.losses[token] = loss;
  if (args.greedy != nullptr) args.greedy[token] = greedy;
}
__device__ __forceinline__ void gradient_of_statistics(const LossOfStatisticsArgs& args) {
  const int token = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (token >= args.tokens) return;
  const bool counts = args.targets[token] >= 0;
  const float seed = args.seed != nullptr ? *args.seed : 1.0f;
  const Reduced all(args, token);
  for (int p = 0; p < args.parts; ++p) {
    const int64_t at = (static_cast<int64_t>(p) * args.tokens + token) * 3;
    const float of_sum = counts ? seed / all.sum * expf(args.statistics[at] - all.most) : 0.0f;
    args.dstatistics[at] = of_sum * args.statistics[at + 1];
    args.dstatistics[at + 1] = of_sum;
    args.dstatistics[at + 2] = counts && args.statistics[at + 2] != -INFINITY ? -seed : 0.0f;
  }
}

__device__ __forceinline__ void target_ahead(const TargetsAheadArgs& args) {
  const int row = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (row >= args.rows) return;
  args.tokens[row] = max(args.ahead[row], 0);
  args.ahead_out[row] = (row + 1) % args.length != 0 && args.targets[row] >= 0 ? args.ahead[row + 1] : -1;
}

#define STRATA_SPLIT(NAME, ARGS, BODY)                                                        \
  extern "C" __global__ void __launch_bounds__(512) NAME(const __grid_constant__ ARGS args) { \
    BODY(args);                                                                               \
  }
STRATA_SPLIT(split_loss_statistics, SplitLossArgs, statistics_of_part)
STRATA_SPLIT(split_loss_gradient_bf16, SplitLossArgs, gradient_of_part<BF16>)
STRATA_SPLIT(split_loss_gradient_f32, SplitLossArgs, gradient_of_part<float>)
STRATA_SPLIT(loss_of_statistics, LossOfStatisticsArgs, losses_of_statistics)
STRATA_SPLIT(loss_of_statistics_gradient, LossOfStatisticsArgs, gradient_of_statistics)
STRATA_SPLIT(targets_ahead, TargetsAheadArgs, target_ahead)
extern "C" __global__ void loss_seed(const __grid_constant__ LossSeedArgs args) {
  const auto main = static_cast<double>(*args.main_terms), own = static_cast<double>(*args.terms);
  *args.seed = own > 0 ? static_cast<float>(args.weight * main / own) : 0.0f;
}

}  // namespace strata::gpu
