// Rows and numbers of token–expert pairs: biases, capacity, counts, rows that are gathered and added up. Also
// tempered queries and chunks of documents. Plain loops: none of them is a large part of a step.
#include "kernels/gpu/args_experts.h"
#include "kernels/gpu/expert_slots.cuh"
#include "kernels/gpu/vector.cuh"
#include "kernels/gpu/warp.cuh"

#define STRATA_KERNEL(NAME, ARGS) \
  extern "C" __global__ void __launch_bounds__(256) NAME(const __grid_constant__ ARGS args)

namespace strata::gpu {

__device__ __forceinline__ int64_t thread_of_grid() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}

// --- Rows by weights. One block per row.

template <typename T, int kCount>
__device__ __forceinline__ void scale_row(const ScaleRowsArgs& args) {
  const int64_t row = blockIdx.x, first = row * args.columns;
  const float weight = args.weights[row];
  const T *const x = static_cast<const T*>(args.x) + first, *const dy =
                                                                static_cast<const T*>(args.dy) + first;
  T* const out = static_cast<T*>(args.out) + first;
  float sum = 0.0f;
  for (int64_t c = static_cast<int64_t>(threadIdx.x) * kCount; c < args.columns; c += blockDim.x * kCount) {
    float value[kCount], given[kCount];
    load(x + c, value);
    if (args.dy != nullptr) load(dy + c, given);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if (args.dy != nullptr) {
        sum = fmaf(given[i], value[i], sum);
        value[i] = given[i];
      }
      value[i] *= weight;
    }
    store(out + c, value);
  }
  if (args.dy == nullptr) return;
  __shared__ float shared[256 / kWarp];
  sum = warp_sum(sum);
  if (lane_of_thread() == 0) shared[threadIdx.x / kWarp] = sum;
  __syncthreads();
  if (threadIdx.x != 0) return;
  sum = 0.0f;
  for (int warp = 0; warp < static_cast<int>(blockDim.x) / kWarp; ++warp) sum += shared[warp];
  args.dweights[row] = sum;
}
STRATA_KERNEL(scale_rows_bf16, ScaleRowsArgs) {
  scale_row<BF16, 8>(args);
}
STRATA_KERNEL(scale_rows_f32, ScaleRowsArgs) {
  scale_row<float, 4>(args);
}
STRATA_KERNEL(scale_rows_bf16_any, ScaleRowsArgs) {
  scale_row<BF16, 1>(args);
}
STRATA_KERNEL(scale_rows_f32_any, ScaleRowsArgs) {
  scale_row<float, 1>(args);
}

// --- Biases

// The expert of a pair; negative: none.
__device__ __forceinline__ int expert_of_slot(const ExpertBiasArgs& args, int64_t slot) {
  if (args.token_offsets != nullptr && slot >= args.token_offsets[args.token_count]) return -1;
  return args.ids[slot];
}

// One block per row. y may be x.
template <typename T>
__device__ __forceinline__ void add_bias(const ExpertBiasArgs& args) {
  const int64_t row = blockIdx.x;
  const bool of_token = args.weights != nullptr;
  int64_t first = row, end = row + 1;
  if (of_token) {
    first = args.token_offsets != nullptr ? args.token_offsets[row] : row * args.per_token;
    end = args.token_offsets != nullptr ? args.token_offsets[row + 1] : first + args.per_token;
  }
  for (int64_t c = threadIdx.x; c < args.columns; c += blockDim.x) {
    float sum = to_float(static_cast<const T*>(args.x)[row * args.columns + c]);
    for (int64_t slot = first; slot < end; ++slot) {
      const int expert = expert_of_slot(args, slot);
      if (expert < 0) continue;
      sum = fmaf(of_token ? args.weights[slot] : 1.0f, args.bias[expert * args.columns + c], sum);
    }
    static_cast<T*>(args.y)[row * args.columns + c] = from_float<T>(sum);
  }
}
STRATA_KERNEL(expert_bias_bf16, ExpertBiasArgs) {
  add_bias<BF16>(args);
}
STRATA_KERNEL(expert_bias_f32, ExpertBiasArgs) {
  add_bias<float>(args);
}

// A block per expert and 32 columns: eight warps share the expert's pairs.
template <typename T>
__device__ __forceinline__ void bias_gradient(const ExpertBiasArgs& args) {
  __shared__ float shared[256 / kWarp][kWarp];
  const int blocks = static_cast<int>((args.columns + kWarp - 1) / kWarp);
  const int expert = static_cast<int>(blockIdx.x) / blocks, lane = lane_of_thread(),
            warp = static_cast<int>(threadIdx.x) / kWarp;
  const int64_t column = static_cast<int64_t>(static_cast<int>(blockIdx.x) % blocks) * kWarp + lane;
  float sum = 0.0f;
  if (column < args.columns) {
    for (int at = args.offsets[expert] + warp; at < args.offsets[expert + 1]; at += 256 / kWarp) {
      const int slot = args.slots[at], row = args.weights != nullptr ? args.tokens[at] : slot;
      const float given = to_float(static_cast<const T*>(args.x)[row * args.columns + column]);
      sum = fmaf(args.weights != nullptr ? args.weights[slot] : 1.0f, given, sum);
    }
  }
  shared[warp][lane] = sum;
  __syncthreads();
  if (warp != 0 || column >= args.columns) return;
  sum = 0.0f;
  for (int w = 0; w < 256 / kWarp; ++w) sum += shared[w][lane];
  float& to = args.dbias[expert * args.columns + column];
  to = (args.accumulate != 0 ? to : 0.0f) + sum;
}
STRATA_KERNEL(expert_bias_gradient_bf16, ExpertBiasArgs) {
  bias_gradient<BF16>(args);
}
STRATA_KERNEL(expert_bias_gradient_f32, ExpertBiasArgs) {
  bias_gradient<float>(args);
}

// A warp per pair.
template <typename T>
__device__ __forceinline__ void bias_weights_gradient(const ExpertBiasArgs& args) {
  const int64_t slot = warp_of_grid();
  if (slot >= args.count) return;
  const int expert = expert_of_slot(args, slot);
  float sum = 0.0f;
  if (expert >= 0) {
    const int64_t row =
        token_of_slot(args.token_offsets, args.token_count, args.per_token, static_cast<int>(slot));
    for (int64_t c = lane_of_thread(); c < args.columns; c += kWarp) {
      sum = fmaf(to_float(static_cast<const T*>(args.x)[row * args.columns + c]),
                 args.bias[expert * args.columns + c], sum);
    }
  }
  sum = warp_sum(sum);
  if (lane_of_thread() == 0) args.dweights[slot] = sum;
}
STRATA_KERNEL(expert_bias_weights_gradient_bf16, ExpertBiasArgs) {
  bias_weights_gradient<BF16>(args);
}
STRATA_KERNEL(expert_bias_weights_gradient_f32, ExpertBiasArgs) {
  bias_weights_gradient<float>(args);
}

// --- Capacity. A thread per place of the lists by expert, whose pairs are in order.

// The first place in [low, high) of the lists whose pair is not before this one.
__device__ __forceinline__ int place_from(const int32_t* slots, int low, int high, int slot) {
  while (low < high) {
    const int middle = (low + high) / 2;
    if (slots[middle] < slot) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

// Whether `capacity` pairs of the same expert and group have greater scores. NaN is the greatest; of equal scores the
// first pair comes first.
__device__ __forceinline__ bool is_excess(const LimitExpertsArgs& args, int expert, int slot) {
  const int group = slot / args.of_group * args.of_group, end = args.offsets[expert + 1];
  const float own = args.weights[slot];
  int before = 0;
  for (int at = place_from(args.slots, args.offsets[expert], end, group);
       at < end && args.slots[at] < group + args.of_group && before < args.capacity; ++at) {
    const int other = args.slots[at];
    if (other == slot) continue;
    const float score = args.weights[other];
    const bool is_first = other < slot;
    if (isnan(score) || isnan(own)) {
      before += (isnan(score) && isnan(own) ? is_first : isnan(score)) ? 1 : 0;
    } else {
      before += score > own || (score == own && is_first) ? 1 : 0;
    }
  }
  return before >= args.capacity;
}

STRATA_KERNEL(limit_experts, LimitExpertsArgs) {
  const int64_t at = thread_of_grid();
  if (at >= args.count) return;
  const int slot = args.slots[at];
  int kept = -1;
  if (at < args.offsets[args.experts]) {
    const int expert = args.ids[slot];
    bool excess;
    if (args.greatest != 0) {
      excess = is_excess(args, expert, slot);
    } else {
      // The pair `capacity` places before is of the same expert, group and document.
      const int64_t before = at - args.capacity;
      excess = before >= args.offsets[expert];
      if (excess) {
        const int other = args.slots[before];
        excess = other / args.of_group == slot / args.of_group &&
                 (args.begins == nullptr ||
                  args.begins[other / args.per_token] == args.begins[slot / args.per_token]);
      }
    }
    if (!excess || isnan(args.weights[slot])) kept = expert;
  }
  args.kept[slot] = kept;
}

STRATA_KERNEL(weights_of_kept, KeptWeightsArgs) {
  const int64_t i = thread_of_grid();
  if (i >= args.n) return;
  const float weight = args.weights[i];
  args.kept[i] = args.ids[i] >= 0 || isnan(weight) ? weight : 0.0f;
}

// --- Counts

// One block per expert.
STRATA_KERNEL(expert_counts, ExpertCountsArgs) {
  __shared__ int shared[256 / kWarp];
  const int expert = static_cast<int>(blockIdx.x);
  int found = 0;
  for (int64_t slot = threadIdx.x; slot < args.count; slot += blockDim.x) {
    if (args.ids[slot] != expert) continue;
    found += args.targets == nullptr || args.targets[slot / args.per_token] >= 0 ? 1 : 0;
  }
  found = warp_sum(found);
  if (lane_of_thread() == 0) shared[threadIdx.x / kWarp] = found;
  __syncthreads();
  if (threadIdx.x != 0) return;
  int64_t sum = args.accumulate != 0 ? args.counts[expert] : 0;
  for (int warp = 0; warp < static_cast<int>(blockDim.x) / kWarp; ++warp) sum += shared[warp];
  args.counts[expert] = sum;
}

STRATA_KERNEL(running_counts, RunningCountsArgs) {
  const int64_t i = thread_of_grid();
  if (i < args.n) args.now[i] = static_cast<float>(args.counts[i]);
}

// --- Rows of groups

// A block per row of y and its columns in turn.
template <typename T>
__device__ __forceinline__ void gather(const GroupRowsArgs& args) {
  const int64_t slot = blockIdx.x, row = slot / args.slots * args.rows + args.tokens[slot];
  for (int64_t c = threadIdx.x; c < args.columns; c += blockDim.x)
    static_cast<T*>(args.y)[slot * args.columns + c] = static_cast<const T*>(args.x)[row * args.columns + c];
}
STRATA_KERNEL(gather_rows_bf16, GroupRowsArgs) {
  gather<BF16>(args);
}
STRATA_KERNEL(gather_rows_f32, GroupRowsArgs) {
  gather<float>(args);
}

// Every thread looks for the rows of the block's token.
template <typename T>
__device__ __forceinline__ void scatter(const GroupRowsArgs& args) {
  const int64_t row = blockIdx.x, first = row / args.rows * args.slots;
  const int token = static_cast<int>(row % args.rows);
  for (int64_t c = threadIdx.x; c < args.columns; c += blockDim.x) {
    float sum = 0.0f;
#pragma unroll 4
    for (int64_t slot = first; slot < first + args.slots; ++slot) {
      if (args.tokens[slot] == token) sum += to_float(static_cast<const T*>(args.x)[slot * args.columns + c]);
    }
    static_cast<T*>(args.y)[row * args.columns + c] = from_float<T>(sum);
  }
}
STRATA_KERNEL(scatter_rows_bf16, GroupRowsArgs) {
  scatter<BF16>(args);
}
STRATA_KERNEL(scatter_rows_f32, GroupRowsArgs) {
  scatter<float>(args);
}

// --- Positions

// One block per row. y may be x.
template <typename T>
__device__ __forceinline__ void temper_row(const TemperArgs& args) {
  const int64_t row = blockIdx.x;
  const int64_t turns = (static_cast<int64_t>(args.positions[row]) + 1) / args.floor;
  const float factor = 1.0f + args.scale * log1pf(static_cast<float>(turns));
  const T* const x = static_cast<const T*>(args.x) + row * args.width;
  T* const y = static_cast<T*>(args.y) + row * args.width;
  for (int64_t c = threadIdx.x; c < args.width; c += blockDim.x)
    y[c] = c < args.q_width ? from_float<T>(to_float(x[c]) * factor) : x[c];
}
STRATA_KERNEL(temper_bf16, TemperArgs) {
  temper_row<BF16>(args);
}
STRATA_KERNEL(temper_f32, TemperArgs) {
  temper_row<float>(args);
}

STRATA_KERNEL(chunk_begins, ChunkBeginsArgs) {
  const int64_t i = thread_of_grid();
  if (i >= args.n) return;
  args.begins[i] = (args.document_begins != nullptr ? args.document_begins[i] : 0) +
                   args.positions[i] / args.size * args.size;
}

// --- A rank's part of a vector. A thread per element of the part.

STRATA_KERNEL(take_part, TakePartArgs) {
  const int64_t i = thread_of_grid();
  if (i < args.n) args.part[i] = args.x[(args.place != nullptr ? *args.place : 0) * args.n + i];
}
// A thread per element of x.
STRATA_KERNEL(take_part_gradient, TakePartArgs) {
  const int64_t i = thread_of_grid();
  if (i >= args.n * args.parts) return;
  const int64_t at = i - (args.place != nullptr ? *args.place : 0) * args.n;
  const float more = at >= 0 && at < args.n ? args.part[at] : 0.0f;
  args.x[i] = (args.accumulate != 0 ? args.x[i] : 0.0f) + more;
}

}  // namespace strata::gpu
