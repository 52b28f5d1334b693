// Lists of token–expert pairs by expert, in an order that depends only on the ids: three kernels count the
// pairs of each chunk, place the experts, and place the pairs. Also the sum over a token's pairs.
#include "kernels/gpu/args.h"
#include "kernels/gpu/expert_slots.cuh"
#include "kernels/gpu/vector.cuh"

namespace strata::gpu {

constexpr int kChunk = 1024, kExpertTile = 128;

// The expert of a token–expert pair, or `experts`.
__device__ __forceinline__ int expert_of(const ExpertsSortArgs& args, int slot) {
  if (slot >= args.count || (args.token_offsets != nullptr && slot >= args.token_offsets[args.token_count]))
    return args.experts;
  if (args.idle > 0 && slot / args.per_token % args.sequence >= args.sequence - args.idle)
    return args.experts;
  const int id = args.ids[slot];
  return id >= 0 && id < args.experts ? id : args.experts;
}

__device__ __forceinline__ void count_slots(const ExpertsSortArgs& args) {
  __shared__ int ids[kChunk];
  const int first = static_cast<int>(blockIdx.x) * kChunk, thread = static_cast<int>(threadIdx.x);
  ids[thread] = expert_of(args, first + thread);
  __syncthreads();
  const int count = min(kChunk, args.count - first);
  for (int expert = thread; expert <= args.experts; expert += kChunk) {
    int found = 0;
    for (int i = 0; i < count; ++i) found += ids[i] == expert ? 1 : 0;
    args.counts[static_cast<int64_t>(blockIdx.x) * (args.experts + 1) + expert] = found;
  }
}

// The sum of the values of the threads before this one.
__device__ __forceinline__ int sum_before(int value, int* shared) {
  const int thread = static_cast<int>(threadIdx.x);
  shared[thread] = value;
  __syncthreads();
  for (int gap = 1; gap < kChunk; gap *= 2) {
    const int more = thread >= gap ? shared[thread - gap] : 0;
    __syncthreads();
    shared[thread] += more;
    __syncthreads();
  }
  const int all = shared[thread];
  __syncthreads();
  return all - value;
}

// One block. A thread has consecutive experts: one, if there are no more than threads.
__device__ __forceinline__ void place_experts(const ExpertsSortArgs& args) {
  __shared__ int shared[kChunk];
  const int each = args.experts / kChunk + 1, first = static_cast<int>(threadIdx.x) * each,
            end = min(first + each, args.experts + 1);
  const auto count_of = [&](int expert, int chunk) -> int32_t& {
    return args.counts[static_cast<int64_t>(chunk) * (args.experts + 1) + expert];
  };
  int count = 0, tiles = 0;
  for (int expert = first; expert < end; ++expert) {
    int its = 0;
    for (int chunk = 0; chunk < args.chunks; ++chunk) its += count_of(expert, chunk);
    count += its;
    tiles += (its + kExpertTile - 1) / kExpertTile;
  }
  int begin = sum_before(count, shared), tile = sum_before(tiles, shared);
  for (int expert = first; expert < end; ++expert) {
    args.offsets[expert] = begin;
    int at = begin;
    for (int chunk = 0; chunk < args.chunks; ++chunk) {
      const int its = count_of(expert, chunk);
      count_of(expert, chunk) = at;
      at += its;
    }
    for (; begin < at; begin += kExpertTile, ++tile)
      *reinterpret_cast<int2*>(args.tiles + 2 * tile) = make_int2(expert, begin);
    begin = at;
  }
  if (first >= end || end != args.experts + 1) return;
  args.offsets[args.experts + 1] = begin;
  for (; tile < args.tile_count; ++tile) *reinterpret_cast<int2*>(args.tiles + 2 * tile) = make_int2(-1, -1);
}

__device__ __forceinline__ void place_slots(const ExpertsSortArgs& args) {
  __shared__ int ids[kChunk];
  const int thread = static_cast<int>(threadIdx.x), slot = static_cast<int>(blockIdx.x) * kChunk + thread;
  const int expert = expert_of(args, slot);
  ids[thread] = expert;
  __syncthreads();
  if (slot >= args.count) return;
  int before = 0;
  for (int i = 0; i < thread; ++i) before += ids[i] == expert ? 1 : 0;
  const int place = args.counts[static_cast<int64_t>(blockIdx.x) * (args.experts + 1) + expert] + before;
  args.slots[place] = slot;
  args.tokens[place] = token_of_slot(args.token_offsets, args.token_count, args.per_token, slot);
}

template <typename T, int kCount>
__device__ __forceinline__ void sum_slots(const ExpertsSumArgs& args) {
  const int token = static_cast<int>(blockIdx.x),
            column = static_cast<int>(blockIdx.y * blockDim.x + threadIdx.x) * kCount;
  if (column >= args.columns) return;
  const int begin = args.token_offsets != nullptr ? args.token_offsets[token] : token * args.per_token,
            end = args.token_offsets != nullptr ? args.token_offsets[token + 1] : begin + args.per_token;
  float sum[kCount] = {};
#pragma unroll 4
  for (int slot = begin; slot < end; ++slot) {
    float part[kCount];
    load(args.parts + static_cast<int64_t>(slot) * args.columns + column, part);
#pragma unroll
    for (int i = 0; i < kCount; ++i) sum[i] += part[i];
  }
  store(static_cast<T*>(args.out) + static_cast<int64_t>(token) * args.columns + column, sum);
}

#define STRATA_KERNEL(NAME, ARGS, ...)                                                         \
  extern "C" __global__ void __launch_bounds__(1024) NAME(const __grid_constant__ ARGS args) { \
    __VA_ARGS__(args);                                                                         \
  }
STRATA_KERNEL(experts_count, ExpertsSortArgs, count_slots)
STRATA_KERNEL(experts_place, ExpertsSortArgs, place_experts)
STRATA_KERNEL(experts_slots, ExpertsSortArgs, place_slots)
STRATA_KERNEL(experts_sum_bf16, ExpertsSumArgs, sum_slots<BF16, 8>)
STRATA_KERNEL(experts_sum_f32, ExpertsSumArgs, sum_slots<float, 4>)
STRATA_KERNEL(experts_sum_any_bf16, ExpertsSumArgs, sum_slots<BF16, 1>)
STRATA_KERNEL(experts_sum_any_f32, ExpertsSumArgs, sum_slots<float, 1>)

}  // namespace strata::gpu
