// Soft mixtures of experts: softmaxes over a group's tokens or mixed inputs, and the matmuls that mix rows.
#include "kernels/gpu/args_experts.h"
#include "kernels/gpu/plain_tile.cuh"
#include "kernels/gpu/router.cuh"

#define STRATA_KERNEL(NAME, ARGS) \
  extern "C" __global__ void __launch_bounds__(256) NAME(const __grid_constant__ ARGS args)

namespace strata::gpu {

// A thread per mixed input of a group: calls body(first, stride) with its column of the logits.
template <typename Body>
__device__ __forceinline__ void for_column(const SoftArgs& args, const Body& body) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (at >= static_cast<int64_t>(args.groups) * args.slots) return;
  body(at / args.slots * args.rows * args.slots + at % args.slots);
}

STRATA_KERNEL(soft_weights_of_tokens, SoftArgs) {
  for_column(args, [&](int64_t first) {
    float greatest = -INFINITY, sum = 0.0f;
    for (int64_t r = 0; r < args.rows; ++r) greatest = fmaxf(greatest, args.logits[first + r * args.slots]);
    for (int64_t r = 0; r < args.rows; ++r) {
      const float weight = expf(args.logits[first + r * args.slots] - greatest);
      args.weights[first + r * args.slots] = weight;
      sum += weight;
    }
    for (int64_t r = 0; r < args.rows; ++r) args.weights[first + r * args.slots] *= 1.0f / sum;
  });
}
// dlogits = weights · (dlogits - mean), from the dot products of rows.
STRATA_KERNEL(soft_through_tokens, SoftArgs) {
  for_column(args, [&](int64_t first) {
    float mean = 0.0f;
    for (int64_t r = 0; r < args.rows; ++r) {
      const int64_t at = first + r * args.slots;
      mean = fmaf(args.dlogits[at], args.weights[at], mean);
    }
    for (int64_t r = 0; r < args.rows; ++r) {
      const int64_t at = first + r * args.slots;
      args.dlogits[at] = args.weights[at] * (args.dlogits[at] - mean);
    }
  });
}

// A warp per token.
STRATA_KERNEL(soft_weights_of_slots, SoftArgs) {
  const int64_t token = warp_of_grid();
  if (token >= static_cast<int64_t>(args.groups) * args.rows) return;
  const TokenScores scores(args.logits + token * args.slots, args.slots, false);
  for (int s = lane_of_thread(); s < args.slots; s += kWarp)
    args.weights[token * args.slots + s] = scores.at(s);
}
STRATA_KERNEL(soft_through_slots, SoftArgs) {
  const int64_t token = warp_of_grid();
  if (token >= static_cast<int64_t>(args.groups) * args.rows) return;
  const float* const weights = args.weights + token * args.slots;
  float* const d = args.dlogits + token * args.slots;
  float mean = 0.0f;
  for (int s = lane_of_thread(); s < args.slots; s += kWarp) mean = fmaf(d[s], weights[s], mean);
  mean = warp_sum(mean);
  for (int s = lane_of_thread(); s < args.slots; s += kWarp) d[s] = weights[s] * (d[s] - mean);
}

// A group's rows of `out`, one per mixed input (kToSlots) or per token, are sums of the others' by its weights.
template <typename T, bool kToSlots>
__device__ __forceinline__ void mix(const SoftArgs& args) {
  const int made = kToSlots ? args.slots : args.rows, read = kToSlots ? args.rows : args.slots;
  const int tiles = (made + kPlainTile - 1) / kPlainTile;
  const int64_t row0 = static_cast<int64_t>(static_cast<int>(blockIdx.x) % tiles) * kPlainTile,
                column0 = static_cast<int64_t>(static_cast<int>(blockIdx.x) / tiles) * kPlainTile,
                group = blockIdx.y;
  const float* const weights = args.weights + group * args.rows * args.slots;
  const T* const from = static_cast<const T*>(args.a) + group * read * args.columns;
  float sum[4][4] = {};
  multiply_plain<!kToSlots, false>(
      sum, read,
      [&](int row, int64_t k) {
        if (row0 + row >= made) return 0.0f;
        return weights[kToSlots ? k * args.slots + row0 + row : (row0 + row) * args.slots + k];
      },
      [&](int64_t k, int column) {
        return column0 + column < args.columns ? to_float(from[k * args.columns + column0 + column]) : 0.0f;
      });
  T* const to = static_cast<T*>(args.out) + group * made * args.columns;
  put_plain(sum, [&](int row, int column, float value) {
    if (row0 + row < made && column0 + column < args.columns)
      to[(row0 + row) * args.columns + column0 + column] = from_float<T>(value);
  });
}
STRATA_KERNEL(soft_mix_to_inputs_bf16, SoftArgs) {
  mix<BF16, true>(args);
}
STRATA_KERNEL(soft_mix_to_inputs_f32, SoftArgs) {
  mix<float, true>(args);
}
STRATA_KERNEL(soft_mix_to_tokens_bf16, SoftArgs) {
  mix<BF16, false>(args);
}
STRATA_KERNEL(soft_mix_to_tokens_f32, SoftArgs) {
  mix<float, false>(args);
}

// Dot products of the rows of a group's tokens (a) and of its mixed inputs (b).
template <typename T>
__device__ __forceinline__ void products(const SoftArgs& args) {
  const int tiles = (args.rows + kPlainTile - 1) / kPlainTile;
  const int64_t row0 = static_cast<int64_t>(static_cast<int>(blockIdx.x) % tiles) * kPlainTile,
                slot0 = static_cast<int64_t>(static_cast<int>(blockIdx.x) / tiles) * kPlainTile,
                group = blockIdx.y;
  const T* const a = static_cast<const T*>(args.a) + group * args.rows * args.columns;
  const T* const b = static_cast<const T*>(args.b) + group * args.slots * args.columns;
  float sum[4][4] = {};
  multiply_plain<true, true>(
      sum, args.columns,
      [&](int row, int64_t k) {
        return row0 + row < args.rows ? to_float(a[(row0 + row) * args.columns + k]) : 0.0f;
      },
      [&](int64_t k, int slot) {
        return slot0 + slot < args.slots ? to_float(b[(slot0 + slot) * args.columns + k]) : 0.0f;
      });
  float* const to = args.dlogits + group * args.rows * args.slots;
  put_plain(sum, [&](int row, int slot, float value) {
    if (row0 + row < args.rows && slot0 + slot < args.slots)
      to[(row0 + row) * args.slots + slot0 + slot] = value;
  });
}
STRATA_KERNEL(soft_products_bf16, SoftArgs) {
  products<BF16>(args);
}
STRATA_KERNEL(soft_products_f32, SoftArgs) {
  products<float>(args);
}

// The expert of each mixed input, and a weight of 1.
STRATA_KERNEL(soft_slots, SoftArgs) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (at >= static_cast<int64_t>(args.groups) * args.slots) return;
  args.experts[at] = static_cast<int32_t>(at % args.slots / args.of_expert);
  args.ones[at] = 1.0f;
}

}  // namespace strata::gpu
