// Flash attention forward, bf16 with fp32 sums (Dao 2023): a block has kWarps × kTiles × 16 queries of one
// head and walks the keys that they see, kKeys at a time, with online softmax (Milakov and Gimelshein).
#pragma once

#include "kernels/gpu/attention.cuh"

namespace strata::gpu {

template <int kTiles, int kKeys, bool kCapped>
__device__ __forceinline__ void mask_scores(float (&scores)[kTiles][kKeys / 8][4], const AttentionArgs& args,
                                            int sequence, int row0, int key0, bool all_seen) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  if constexpr (kCapped) {
    const float cap_unit = 2.0f * args.scale / args.softcap;
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
#pragma unroll
      for (int j = 0; j < kKeys / 8; ++j) {
#pragma unroll
        for (int e = 0; e < 4; ++e) scores[i][j][e] = args.softcap * capped_share(scores[i][j][e], cap_unit);
      }
    }
  }
  if (all_seen) return;
#pragma unroll
  for (int i = 0; i < kTiles; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int2 seen = keys_of_row(args, sequence, row0 + i * 16 + half * 8 + lane / 4);
      // Relative to this lane's first key.
      const int first = seen.x - key0 - lane % 4 * 2, last = seen.y - key0 - lane % 4 * 2;
#pragma unroll
      for (int j = 0; j < kKeys / 8; ++j) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          if (j * 8 + e < first || j * 8 + e >= last) scores[i][j][half * 2 + e] = -INFINITY;
        }
      }
    }
  }
}

// Turns scores into weights relative to the largest score so far (`most`) and updates `total`, this lane's
// sum of weights. `shrink`: the factor for earlier sums. Scores are in units of 1 / `unit` base-2 logarithms,
// so that weights are powers of two.
template <int kTiles, int kKeys>
__device__ __forceinline__ void weigh_scores(float (&scores)[kTiles][kKeys / 8][4], float (&most)[kTiles][2],
                                             float (&total)[kTiles][2], float (&shrink)[kTiles][2],
                                             float unit) {
#pragma unroll
  for (int i = 0; i < kTiles; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float now = most[i][half];
#pragma unroll
      for (int j = 0; j < kKeys / 8; ++j)
        now = fmaxf(now, fmaxf(scores[i][j][half * 2], scores[i][j][half * 2 + 1]));
      now = fmaxf(now, shuffle_xor(now, 1));
      now = fmaxf(now, shuffle_xor(now, 2));
      // Keeps exponents finite for a row that has not seen a key yet.
      const float shift = now == -INFINITY ? 0.0f : now * unit;
      shrink[i][half] = exp2_fast(most[i][half] * unit - shift);
      most[i][half] = now;
      float added = 0.0f;
#pragma unroll
      for (int j = 0; j < kKeys / 8; ++j) {
#pragma unroll
        for (int e = half * 2; e < half * 2 + 2; ++e) {
          scores[i][j][e] = exp2_fast(fmaf(scores[i][j][e], unit, -shift));
          added += scores[i][j][e];
        }
      }
      total[i][half] = total[i][half] * shrink[i][half] + added;
    }
  }
}
template <int kTiles, int kDim>
__device__ __forceinline__ void shrink_rows(float (&sum)[kTiles][kDim / 8][4],
                                            const float (&shrink)[kTiles][2]) {
#pragma unroll
  for (int i = 0; i < kTiles; ++i) {
#pragma unroll
    for (int d = 0; d < kDim / 8; ++d) {
#pragma unroll
      for (int e = 0; e < 4; ++e) sum[i][d][e] *= shrink[i][e / 2];
    }
  }
}

// Writes the rows of a warp, from `row` of the sequence on, and their lse.
template <int kTiles, int kDim, bool kCapped>
__device__ __forceinline__ void finish_rows(const AttentionArgs& args,
                                            const float (&sum)[kTiles][kDim / 8][4],
                                            const float (&most)[kTiles][2], float (&total)[kTiles][2],
                                            int sequence, int head, int row) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
  for (int i = 0; i < kTiles; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float& all = total[i][half];
      all += shuffle_xor(all, 1);
      all += shuffle_xor(all, 2);
      float factor = all > 0.0f ? reciprocal_fast(all) : 0.0f;
      const float highest = kCapped ? most[i][half] : most[i][half] * args.scale;
      float lse = all > 0.0f ? highest + log_fast(all) : -INFINITY;
      if (args.sinks != nullptr) {
        // lse with the sink: log(e^lse + e^sink).
        const float sink = args.sinks[head], high = fmaxf(lse, sink), low = fminf(lse, sink);
        const float with_sink = high == -INFINITY ? -INFINITY : high + log_fast(1.0f + exp_fast(low - high));
        factor *= all > 0.0f ? exp_fast(lse - with_sink) : 0.0f;
        lse = with_sink;
      }
      const int at = row + i * 16 + half * 8 + lane / 4;
      if (lane % 4 == 0 && at < args.length)
        args.lse[(static_cast<int64_t>(sequence) * args.heads + head) * args.length + at] = lse;
      total[i][half] = factor;
    }
  }
  BF16* out = static_cast<BF16*>(args.out) +
              (static_cast<int64_t>(sequence) * args.length + row) * args.out_stride +
              static_cast<int64_t>(head) * args.value_dim;
  store_rows<kTiles, kDim>(sum, total, out, args.out_stride, args.length - row, args.value_dim);
}

template <int kDim, int kTiles, int kWarps, int kKeys, bool kCapped>
__device__ __forceinline__ void attention_forward(const AttentionArgs& args) {
  constexpr int kThreads = kWarps * kWarp, kRows = kTiles * kWarps * 16, kPairs = kKeys / 16;
  extern __shared__ __align__(1024) uint8_t shared[];
  const uint32_t q_tile = shared_address(shared), k_tile = q_tile + kRows * kDim * 2,
                 v_tile = k_tile + kKeys * kDim * 2;
  // Later rows see more keys, so they start first.
  const int row0 = static_cast<int>(gridDim.x - 1 - blockIdx.x) * kRows, head = static_cast<int>(blockIdx.y),
            sequence = static_cast<int>(blockIdx.z), kv_head = head / (args.heads / args.kv_heads);
  const int warp_row = static_cast<int>(threadIdx.x) / kWarp * kTiles * 16;
  const HeadRows q = head_rows(args.q, args.q_stride, sequence, args.length, head, args.head_dim);
  const KeyRange range = key_range(args, sequence, row0, kRows);
  const int keys_of = key_sequence(args, sequence);
  HeadRows k = head_rows(args.k, args.k_stride, keys_of, args.kv_length, kv_head, args.head_dim);
  HeadRows v = head_rows(args.v, args.v_stride, keys_of, args.kv_length, kv_head, args.value_dim);
  // Later rows may hold NaN, which a weight of 0 does not remove.
  k.rows = v.rows = range.end;
  const int begin = range.begin / kKeys * kKeys;
  const uint32_t q_begin = begin_across<kDim / 8>(q_tile, warp_row),
                 k_begin = begin_along<kDim / 8>(k_tile, 0), v_begin = begin_across<kDim / 8>(v_tile, 0);
  const float unit = kCapped ? kLog2E : args.scale * kLog2E;

  float sum[kTiles][kDim / 8][4] = {};
  float most[kTiles][2], total[kTiles][2];
#pragma unroll
  for (int i = 0; i < kTiles; ++i) most[i][0] = most[i][1] = -INFINITY, total[i][0] = total[i][1] = 0.0f;

  if (begin < range.end) {
    copy_head<kRows, kDim, kThreads>(q_tile, q, row0);
    copy_head<kKeys, kDim, kThreads>(k_tile, k, begin);
    commit_copies();
  }
  for (int key0 = begin; key0 < range.end; key0 += kKeys) {
    wait_copies<0>();
    __syncthreads();
    copy_head<kKeys, kDim, kThreads>(v_tile, v, key0);
    commit_copies();
    float scores[kTiles][kKeys / 8][4] = {};
    multiply_rows<kTiles, kPairs, kDim>(scores, q_begin, k_begin);
    wait_copies<0>();
    __syncthreads();
    if (key0 + kKeys < range.end) {
      copy_head<kKeys, kDim, kThreads>(k_tile, k, key0 + kKeys);
      commit_copies();
    }
    mask_scores<kTiles, kKeys, kCapped>(scores, args, sequence, row0 + warp_row, key0,
                                        key0 >= range.full_begin && key0 + kKeys <= range.full_end);
    float shrink[kTiles][2];
    weigh_scores<kTiles, kKeys>(scores, most, total, shrink, unit);
    shrink_rows<kTiles, kDim>(sum, shrink);
    multiply_weights<kTiles, kPairs, kDim>(sum, scores, v_begin);
  }

  finish_rows<kTiles, kDim, kCapped>(args, sum, most, total, sequence, head, row0 + warp_row);
}

}  // namespace strata::gpu
