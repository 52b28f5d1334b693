// Sums of partial sums, and the scalars of a step's update.
#include <cstddef>

#include "kernels/gpu/args.h"
#include "kernels/gpu/rows.cuh"
#include "optim/guard_decide.h"
#include "optim/update_hyper.h"

namespace strata::gpu {

// The host writes and reads these structs.
using optim::GuardDecision, optim::GuardHistory, optim::GuardRule, optim::GuardRules, optim::UpdateHyper;
static_assert(sizeof(GuardRule) == 24 && offsetof(GuardRule, window) == 4 &&
              offsetof(GuardRule, threshold) == 8 && offsetof(GuardRule, clip_factor) == 16);
static_assert(sizeof(GuardRules) == 200 && offsetof(GuardRules, rules) == 8);
static_assert(sizeof(UpdateHyper) == 216 && offsetof(UpdateHyper, lr) == 8 &&
              offsetof(UpdateHyper, embedding_scale) == 12 && offsetof(UpdateHyper, rules) == 16);
static_assert(sizeof(GuardHistory) == 16 + 4 * 8 * 512 + 16 && offsetof(GuardHistory, loss) == 16 &&
              offsetof(GuardHistory, grad_norm) == 16 + 2 * 8 * 512);
static_assert(sizeof(GuardDecision) == 112 && offsetof(GuardDecision, loss) == 16 &&
              offsetof(GuardDecision, clip) == 32 && offsetof(GuardDecision, limit) == 40);
static_assert(sizeof(GpuUpdateScalars) == 24 && offsetof(GpuUpdateScalars, update) == 16);

// A warp takes every 32nd list. One block.
__device__ __forceinline__ void add_lists(const PartialsArgs& args) {
  __shared__ double shared[kMostWarps];
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp,
            warps = static_cast<int>(blockDim.x) / kWarp;
  double sum = 0;
  for (int list = warp; list < args.lists; list += warps) {
    const double* const partials = args.partials[list];
#pragma unroll 4
    for (int i = lane; i < args.counts[list]; i += kWarp) sum += partials[i];
  }
  for (int mask = kWarp / 2; mask > 0; mask /= 2) sum += shuffle_xor(sum, mask);
  if (lane == 0) shared[warp] = sum;
  __syncthreads();
  if (threadIdx.x != 0) return;
  sum = args.accumulate != 0 ? *args.sum : 0.0;
  for (int w = 0; w < warps; ++w) sum += shared[w];
  *args.sum = sum;
}

// One block; its threads copy the history, the first decides.
__device__ __forceinline__ void decide_step(const StepScalarsArgs& args) {
  constexpr int kWords = sizeof(GuardHistory) / 8;
  auto* const history = static_cast<uint64_t*>(args.history_out);
  const auto* const before = static_cast<const uint64_t*>(args.history);
  if (history != before) {
    for (int i = static_cast<int>(threadIdx.x); i < kWords; i += static_cast<int>(blockDim.x))
      history[i] = before[i];
    __syncthreads();
  }
  if (threadIdx.x != 0) return;
  const UpdateHyper& hyper = *static_cast<const UpdateHyper*>(args.hyper);
  const int64_t count = *args.token_count;
  // Gradients are sums over tokens. A step without a valid target has no gradient: it is skipped.
  const double mean = count > 0 ? 1.0 / static_cast<double>(count) : 0.0;
  const double norm = sqrt(*args.squares) * mean;
  const GuardDecision decision =
      optim::decide_in(hyper.rules, *args.loss_sum * mean, norm, count > 0, hyper.max_grad_norm,
                       *static_cast<GuardHistory*>(args.history_out), args.workspace);
  GpuUpdateScalars scalars;
  scalars.lr = hyper.lr;
  scalars.grad_scale = static_cast<float>(decision.clip * mean);
  scalars.skip = decision.skip;
  scalars.update = *args.updates + (decision.skip != 0 ? 0 : 1);
  *static_cast<GpuUpdateScalars*>(args.scalars) = scalars;
  *args.updates_out = scalars.update;
  scalars.grad_scale *= hyper.embedding_scale;
  *static_cast<GpuUpdateScalars*>(args.embedding_scalars) = scalars;
  *static_cast<GuardDecision*>(args.decision) = decision;
  *args.norm = static_cast<float>(norm);
}

extern "C" __global__ void __launch_bounds__(1024) sum_partials(const __grid_constant__ PartialsArgs args) {
  add_lists(args);
}
extern "C" __global__ void root_of_sum(const __grid_constant__ RootArgs args) {
  *args.norm = static_cast<float>(sqrt(*args.sum));
}
extern "C" __global__ void __launch_bounds__(256, 1)
    step_scalars(const __grid_constant__ StepScalarsArgs args) {
  decide_step(args);
}

}  // namespace strata::gpu
