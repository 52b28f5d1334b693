// Experts that choose their tokens: the tokens of a group with the greatest scores, found by the bits of a threshold.
#include "kernels/gpu/args_experts.h"
#include "kernels/gpu/warp.cuh"

#define STRATA_KERNEL(NAME, ARGS) \
  extern "C" __global__ void __launch_bounds__(256) NAME(const __grid_constant__ ARGS args)

namespace strata::gpu {

// Ordered as the numbers are, NaN last.
__device__ __forceinline__ uint32_t ordered(float value) {
  if (isnan(value)) return ~uint32_t{0};
  const uint32_t bits = bits_of(value);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

// How many of the numbers are not below the threshold, by a warp.
__device__ __forceinline__ int count_from(const float* scores, int count, uint32_t threshold) {
  int found = 0;
  for (int i = lane_of_thread(); i < count; i += kWarp) found += ordered(scores[i]) >= threshold ? 1 : 0;
  return warp_sum(found);
}

// A warp per group and expert. Of equal tokens the first are taken.
STRATA_KERNEL(expert_choice, ExpertChoiceArgs) {
  const int64_t task = warp_of_grid();
  if (task >= static_cast<int64_t>(args.groups) * args.experts) return;
  const float* const scores = args.scores + task * args.rows;
  // The greatest number that at least `capacity` tokens reach: one of them has it.
  uint32_t threshold = 0;
  for (uint32_t bit = 0x80000000u; bit != 0; bit >>= 1) {
    if (count_from(scores, args.rows, threshold | bit) >= args.capacity) threshold |= bit;
  }
  const int above = threshold == ~uint32_t{0} ? 0 : count_from(scores, args.rows, threshold + 1);
  int equals_left = args.capacity - above;
  int64_t slot = task * args.capacity;
  const int lane = lane_of_thread();
  for (int first = 0; first < args.rows; first += kWarp) {
    const int token = first + lane;
    const bool inside = token < args.rows;
    const float score = inside ? scores[token] : 0.0f;
    const uint32_t key = ordered(score), before_lane = (1u << lane) - 1;
    const uint32_t equals = lanes_with(inside && key == threshold);
    const bool taken =
        inside && (key > threshold || (key == threshold && count_bits(equals & before_lane) < equals_left));
    const uint32_t all = lanes_with(taken);
    if (taken) {
      const int64_t to = slot + count_bits(all & before_lane);
      args.tokens[to] = token;
      args.experts_out[to] = static_cast<int32_t>(task % args.experts);
      args.weights[to] = score * args.scale;
    }
    equals_left -= count_bits(equals);
    slot += count_bits(all);
  }
}

// A thread per place.
STRATA_KERNEL(expert_choice_gradient, ExpertChoiceArgs) {
  const int64_t slot = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64_t of_group = static_cast<int64_t>(args.experts) * args.capacity;
  if (slot >= args.groups * of_group) return;
  const int64_t token = slot / of_group * args.rows + args.tokens[slot];
  args.dscores[token * args.experts + slot % of_group / args.capacity] = args.dweights[slot] * args.scale;
}

}  // namespace strata::gpu
