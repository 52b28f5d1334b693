// Flash attention backward, bf16 with fp32 sums, without atomics. In the kernel for key and value gradients
// each block owns keys and walks the queries that see them; in the kernel for query gradients each block owns
// queries and walks keys. Both recompute the weights from lse: seven matmuls, where one kernel with atomics
// has five, but the same bits every time.
#pragma once

#include "kernels/gpu/attention.cuh"

namespace strata::gpu {

// Blocks of kWarps warps, each with kTiles × 16 own rows; kOthers rows of the other side at a time.
template <int kDimOf, int kTilesOf, int kWarpsOf, int kOthersOf>
struct BackwardShape {
  static constexpr int kDim = kDimOf, kTiles = kTilesOf, kWarps = kWarpsOf, kOthers = kOthersOf,
                       kThreads = kWarps * kWarp, kRows = kWarps * kTiles * 16;
};

// Recomputes a weight from a product of heads and lse.
template <bool kCapped>
struct Weights {
  float unit, cap_unit;
  __device__ Weights(const AttentionArgs& args)
      : unit((kCapped ? args.softcap : args.scale) * kLog2E),
        cap_unit(kCapped ? 2.0f * args.scale / args.softcap : 0.0f) {}
  // Writes the slope of the cap to `slope`.
  __device__ __forceinline__ float operator()(float score, float lse, float* slope) const {
    if constexpr (kCapped) {
      score = capped_share(score, cap_unit);
      *slope = 1.0f - score * score;
    }
    return exp2_fast(fmaf(score, unit, -lse * kLog2E));
  }
};

// The range [*first, *last) of AttentionArgs::tiles with a row that sees one of the keys [key0, key1).
__device__ __forceinline__ void find_tiles(const AttentionArgs& args, int sequence, int key0, int key1,
                                           int* shared, int* first, int* last) {
  const int tiles = (args.length + kRangeRows - 1) / kRangeRows, warp = static_cast<int>(threadIdx.x) / kWarp;
  int low = tiles, high = 0;
  for (int tile = static_cast<int>(threadIdx.x); tile < tiles; tile += static_cast<int>(blockDim.x)) {
    const int4 range =
        *reinterpret_cast<const int4*>(args.tiles + (static_cast<int64_t>(sequence) * tiles + tile) * 4);
    if (range.x < key1 && range.y > key0) low = min(low, tile), high = max(high, tile + 1);
  }
  for (int mask = kWarp / 2; mask > 0; mask /= 2)
    low = min(low, shuffle_xor(low, mask)), high = max(high, shuffle_xor(high, mask));
  if (threadIdx.x % kWarp == 0) shared[2 * warp] = low, shared[2 * warp + 1] = high;
  __syncthreads();
  for (int i = 0; i < static_cast<int>(blockDim.x) / kWarp; ++i)
    low = min(low, shared[2 * i]), high = max(high, shared[2 * i + 1]);
  *first = low;
  *last = high;
}

// dk and dv of kRows keys of a key–value head. Scores are transposed (rows are keys), so that a warp's
// weights are left operands of its matmuls without going through memory.
template <typename Shape, bool kDk, bool kDv, bool kCapped>
__device__ __forceinline__ void attention_backward_keys(const AttentionArgs& args) {
  constexpr int kDim = Shape::kDim, kTiles = Shape::kTiles, kRows = Shape::kRows, kQueries = Shape::kOthers,
                kThreads = Shape::kThreads;
  constexpr int kChunks = kDim / 8, kPairs = kQueries / 16, kPerRange = kRangeRows / kQueries;
  constexpr int kKeyBytes = kRows * kDim * 2, kQueryBytes = kQueries * kDim * 2,
                kStage = 2 * kQueryBytes + 2 * kQueries * 4;
  static_assert(kStage % 128 == 0, "tiles are aligned to 128 bytes");
  extern __shared__ __align__(1024) uint8_t shared[];
  __shared__ int found[2 * Shape::kWarps];
  const uint32_t k_tile = shared_address(shared), v_tile = k_tile + kKeyBytes, stages = v_tile + kKeyBytes;
  const int key0 = static_cast<int>(blockIdx.x) * kRows, kv_head = static_cast<int>(blockIdx.y),
            sequence = static_cast<int>(blockIdx.z);
  const int group = args.heads / args.kv_heads, lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp_row = static_cast<int>(threadIdx.x) / kWarp * kTiles * 16;
  const int tiles = (args.length + kRangeRows - 1) / kRangeRows;

  int first, last;
  find_tiles(args, sequence, key0, min(key0 + kRows, args.kv_length), found, &first, &last);
  first *= kPerRange, last *= kPerRange;
  // Finds the next tile of queries that sees a key of this block, starting at (head, tile).
  const auto seek = [&](int& head, int& tile, int4& range) {
    for (; head < group; ++head, tile = first) {
      for (; tile < last; ++tile) {
        range = *reinterpret_cast<const int4*>(
            args.tiles + (static_cast<int64_t>(sequence) * tiles + tile / kPerRange) * 4);
        if (range.x < key0 + kRows && range.y > key0 && tile * kQueries < args.length) return;
      }
    }
  };
  const auto bring = [&](uint32_t stage, int head, int tile) {
    const int of = kv_head * group + head, query0 = tile * kQueries;
    copy_head<kQueries, kDim, kThreads>(
        stage, head_rows(args.q, args.q_stride, sequence, args.length, of, args.head_dim), query0);
    copy_head<kQueries, kDim, kThreads>(
        stage + kQueryBytes, head_rows(args.dout, args.out_stride, sequence, args.length, of, args.value_dim),
        query0);
    const int64_t row = (static_cast<int64_t>(sequence) * args.heads + of) * args.length + query0;
    for (int i = static_cast<int>(threadIdx.x); i < 2 * kQueries; i += kThreads) {
      const int query = i % kQueries;
      const bool inside = query0 + query < args.length;
      const float* from = i < kQueries ? args.lse : args.delta;
      copy_async_word(stage + 2 * kQueryBytes + i * 4, inside ? from + row + query : from, inside);
    }
  };

  float dk[kTiles][kDim / 8][4] = {}, dv[kTiles][kDim / 8][4] = {};
  const Weights<kCapped> weights(args);
  const uint32_t k_begin = begin_across<kChunks>(k_tile, warp_row),
                 v_begin = begin_across<kChunks>(v_tile, warp_row);
  const uint32_t along = begin_along<kChunks>(stages, 0), across = begin_across<kChunks>(stages, 0);
  int head = 0, tile = first, stage = 0;
  int4 range = make_int4(0, 0, 0, 0);
  seek(head, tile, range);
  if (head < group) {
    copy_head<kRows, kDim, kThreads>(
        k_tile, head_rows(args.k, args.k_stride, sequence, args.kv_length, kv_head, args.head_dim), key0);
    if (kDk)
      copy_head<kRows, kDim, kThreads>(
          v_tile, head_rows(args.v, args.v_stride, sequence, args.kv_length, kv_head, args.value_dim), key0);
    bring(stages, head, tile);
    commit_copies();
  }
  while (head < group) {
    const bool all_seen = range.z <= key0 && range.w >= key0 + kRows;
    const int query0 = tile * kQueries;
    wait_copies<0>();
    __syncthreads();
    ++tile;
    seek(head, tile, range);
    const int now = stage * kStage;
    stage ^= 1;
    if (head < group) {
      bring(stages + stage * kStage, head, tile);
      commit_copies();
    }
    const float* lse = reinterpret_cast<const float*>(shared + 2 * kKeyBytes + now + 2 * kQueryBytes);
    float p[kTiles][kQueries / 8][4] = {}, slopes[kCapped ? kTiles : 1][kQueries / 8][4];
    multiply_rows<kTiles, kPairs, kDim>(p, k_begin, along + now);
#pragma unroll
    for (int j = 0; j < kQueries / 8; ++j) {
      const float2 out_of = *reinterpret_cast<const float2*>(lse + j * 8 + lane % 4 * 2);
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
#pragma unroll
        for (int e = 0; e < 4; ++e)
          p[i][j][e] = weights(p[i][j][e], e % 2 == 0 ? out_of.x : out_of.y, &slopes[kCapped ? i : 0][j][e]);
      }
      if (!all_seen) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int2 seen = keys_of_row(args, sequence, query0 + j * 8 + lane % 4 * 2 + e);
#pragma unroll
          for (int i = 0; i < kTiles; ++i) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
              const int key = key0 + warp_row + i * 16 + half * 8 + lane / 4;
              if (key < seen.x || key >= seen.y) p[i][j][half * 2 + e] = 0.0f;
            }
          }
        }
      }
    }
    if constexpr (kDv) multiply_weights<kTiles, kPairs, kDim>(dv, p, across + now + kQueryBytes);
    if constexpr (kDk) {
      float ds[kTiles][kQueries / 8][4] = {};
      multiply_rows<kTiles, kPairs, kDim>(ds, v_begin, along + now + kQueryBytes);
#pragma unroll
      for (int j = 0; j < kQueries / 8; ++j) {
        const float2 delta = *reinterpret_cast<const float2*>(lse + kQueries + j * 8 + lane % 4 * 2);
#pragma unroll
        for (int i = 0; i < kTiles; ++i) {
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            ds[i][j][e] = p[i][j][e] * (ds[i][j][e] - (e % 2 == 0 ? delta.x : delta.y));
            if constexpr (kCapped) ds[i][j][e] *= p[i][j][e] == 0.0f ? 0.0f : slopes[i][j][e];
          }
        }
      }
      multiply_weights<kTiles, kPairs, kDim>(dk, ds, across + now);
    }
  }

  const int64_t row = static_cast<int64_t>(sequence) * args.kv_length + key0 + warp_row;
  const int rows = args.kv_length - key0 - warp_row;
  float factors[kTiles][2];
  if constexpr (kDk) {
#pragma unroll
    for (int i = 0; i < kTiles; ++i) factors[i][0] = factors[i][1] = args.scale;
    store_rows<kTiles, kDim>(
        dk, factors,
        static_cast<BF16*>(args.dk) + row * args.k_stride + static_cast<int64_t>(kv_head) * args.head_dim,
        args.k_stride, rows, args.head_dim);
  }
  if constexpr (kDv) {
#pragma unroll
    for (int i = 0; i < kTiles; ++i) factors[i][0] = factors[i][1] = 1.0f;
    store_rows<kTiles, kDim>(
        dv, factors,
        static_cast<BF16*>(args.dv) + row * args.v_stride + static_cast<int64_t>(kv_head) * args.value_dim,
        args.v_stride, rows, args.value_dim);
  }
}

// dq of kRows queries of a head.
template <typename Shape, bool kCapped>
__device__ __forceinline__ void attention_backward_queries(const AttentionArgs& args) {
  constexpr int kDim = Shape::kDim, kTiles = Shape::kTiles, kRows = Shape::kRows, kKeys = Shape::kOthers,
                kThreads = Shape::kThreads;
  constexpr int kChunks = kDim / 8, kPairs = kKeys / 16, kQueryBytes = kRows * kDim * 2,
                kKeyBytes = kKeys * kDim * 2;
  extern __shared__ __align__(1024) uint8_t shared[];
  const uint32_t q_tile = shared_address(shared), do_tile = q_tile + kQueryBytes,
                 stages = do_tile + kQueryBytes;
  const int row0 = static_cast<int>(gridDim.x - 1 - blockIdx.x) * kRows, head = static_cast<int>(blockIdx.y),
            sequence = static_cast<int>(blockIdx.z), kv_head = head / (args.heads / args.kv_heads);
  const int lane = static_cast<int>(threadIdx.x) % kWarp,
            warp_row = static_cast<int>(threadIdx.x) / kWarp * kTiles * 16;
  const HeadRows k = head_rows(args.k, args.k_stride, sequence, args.kv_length, kv_head, args.head_dim);
  const HeadRows v = head_rows(args.v, args.v_stride, sequence, args.kv_length, kv_head, args.value_dim);
  const KeyRange range = key_range(args, sequence, row0, kRows);
  const auto bring = [&](uint32_t stage, int key0) {
    copy_head<kKeys, kDim, kThreads>(stage, k, key0);
    copy_head<kKeys, kDim, kThreads>(stage + kKeyBytes, v, key0);
  };

  float dq[kTiles][kDim / 8][4] = {}, lse[kTiles][2], delta[kTiles][2];
#pragma unroll
  for (int i = 0; i < kTiles; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = row0 + warp_row + i * 16 + half * 8 + lane / 4;
      const int64_t at = (static_cast<int64_t>(sequence) * args.heads + head) * args.length + row;
      lse[i][half] = row < args.length ? args.lse[at] : 0.0f;
      delta[i][half] = row < args.length ? args.delta[at] : 0.0f;
    }
  }
  const Weights<kCapped> weights(args);
  const uint32_t q_begin = begin_across<kChunks>(q_tile, warp_row),
                 do_begin = begin_across<kChunks>(do_tile, warp_row);
  const uint32_t along = begin_along<kChunks>(stages, 0), across = begin_across<kChunks>(stages, 0);
  const int begin = range.begin / kKeys * kKeys;
  if (begin < range.end) {
    copy_head<kRows, kDim, kThreads>(
        q_tile, head_rows(args.q, args.q_stride, sequence, args.length, head, args.head_dim), row0);
    copy_head<kRows, kDim, kThreads>(
        do_tile, head_rows(args.dout, args.out_stride, sequence, args.length, head, args.value_dim), row0);
    bring(stages, begin);
    commit_copies();
  }
  int now = 0;
  for (int key0 = begin; key0 < range.end; key0 += kKeys, now ^= 2 * kKeyBytes) {
    wait_copies<0>();
    __syncthreads();
    if (key0 + kKeys < range.end) {
      bring(stages + (now ^ 2 * kKeyBytes), key0 + kKeys);
      commit_copies();
    }
    float p[kTiles][kKeys / 8][4] = {}, ds[kTiles][kKeys / 8][4] = {};
    multiply_rows<kTiles, kPairs, kDim>(p, q_begin, along + now);
    multiply_rows<kTiles, kPairs, kDim>(ds, do_begin, along + now + kKeyBytes);
    const bool all_seen = key0 >= range.full_begin && key0 + kKeys <= range.full_end;
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        int2 seen = make_int2(0, args.kv_length);
        if (!all_seen) seen = keys_of_row(args, sequence, row0 + warp_row + i * 16 + half * 8 + lane / 4);
#pragma unroll
        for (int j = 0; j < kKeys / 8; ++j) {
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            float slope = 1.0f;
            float& to = ds[i][j][half * 2 + e];
            to = weights(p[i][j][half * 2 + e], lse[i][half], &slope) * (to - delta[i][half]);
            if constexpr (kCapped) to *= slope;
            const int key = key0 + j * 8 + lane % 4 * 2 + e;
            if (!all_seen && (key < seen.x || key >= seen.y)) to = 0.0f;
          }
        }
      }
    }
    multiply_weights<kTiles, kPairs, kDim>(dq, ds, across + now);
  }
  float factors[kTiles][2];
#pragma unroll
  for (int i = 0; i < kTiles; ++i) factors[i][0] = factors[i][1] = args.scale;
  BF16* to = static_cast<BF16*>(args.dq) +
             (static_cast<int64_t>(sequence) * args.length + row0 + warp_row) * args.q_stride +
             static_cast<int64_t>(head) * args.head_dim;
  store_rows<kTiles, kDim>(dq, factors, to, args.q_stride, args.length - row0 - warp_row, args.head_dim);
}

// delta: one warp per row of a head.
__device__ __forceinline__ void attention_delta_of(const AttentionArgs& args) {
  const int64_t index = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  if (index >= static_cast<int64_t>(args.batch) * args.length * args.heads) return;
  const int64_t row = index / args.heads, head = index % args.heads,
                at = row * args.out_stride + head * args.value_dim;
  const BF16 *out = static_cast<const BF16*>(args.out) + at, *dout = static_cast<const BF16*>(args.dout) + at;
  float sum = 0.0f;
  for (int c = lane * 4; c < args.value_dim; c += kWarp * 4) {
    float x[4], y[4];
    load(out + c, x);
    load(dout + c, y);
#pragma unroll
    for (int i = 0; i < 4; ++i) sum = fmaf(x[i], y[i], sum);
  }
  for (int mask = kWarp / 2; mask > 0; mask /= 2) sum += shuffle_xor(sum, mask);
  if (lane == 0) args.delta[(row / args.length * args.heads + head) * args.length + row % args.length] = sum;
}

}  // namespace strata::gpu
