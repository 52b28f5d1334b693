// Attention with a bias by distance, with rows of any alignment, or with heads of any size: forward and backward, fp32 or
// bf16 in memory, with scalar multiplications in fp32. Scores are sums over 64 elements of the heads at a time; a block has
// 32 rows and kColumns columns of a result, and makes the scores of its rows itself.
#include "kernels/gpu/args_attention.h"
#include "kernels/gpu/vector.cuh"

namespace strata::gpu {

constexpr int kTileRows = 32, kTilePiece = 64, kTileThreads = 128;
constexpr int kPiecePitch = kTilePiece + 4, kScorePitch = kTileRows + 4;
// The tiles of rows of AttentionArgs::tiles.
constexpr int kTileOfRanges = 64;

// Rows of a head in memory; those from `count` on count as zeros.
template <typename T>
struct RowsOfHead {
  const T* at;
  int64_t stride;
  int count, dim;
};
template <typename T>
__device__ __forceinline__ RowsOfHead<T> rows_of_head(const void* matrix, int64_t row, int64_t stride,
                                                      int head, int dim, int count) {
  return {static_cast<const T*>(matrix) + row * stride + static_cast<int64_t>(head) * dim, stride, count,
          dim};
}

// Columns [first, first + kColumns) of 32 rows; zero beyond the head.
template <int kColumns, typename T>
__device__ __forceinline__ void copy_piece(float* tile, const RowsOfHead<T>& from, int first) {
#pragma unroll 2
  for (int i = static_cast<int>(threadIdx.x); i < kTileRows * kColumns; i += kTileThreads) {
    const int row = i / kColumns, column = i % kColumns;
    const bool inside = row < from.count && first + column < from.dim;
    tile[row * (kColumns + 4) + column] =
        inside ? to_float(from.at[row * from.stride + first + column]) : 0.0f;
  }
}

__device__ __forceinline__ int tile_row() {
  return static_cast<int>(threadIdx.x) / 16 * 4;
}
__device__ __forceinline__ int tile_lane() {
  return static_cast<int>(threadIdx.x) % 16;
}

// The shared memory of a block.
template <int kColumns>
struct PlainTiles {
  float a[kTileRows * kPiecePitch], b[kTileRows * kPiecePitch];
  float weights[kTileRows * kScorePitch];
  float others[kTileRows * (kColumns + 4)];
};

// sum[i][j] = row tile_row() + i of a · row tile_lane() + 16 · j of b, over the whole head. Barriers separate it from what
// came before it, but not from what follows.
template <typename T>
__device__ __forceinline__ void multiply_heads(float (&sum)[4][2], float* tile_a, float* tile_b,
                                               const RowsOfHead<T>& a, const RowsOfHead<T>& b) {
#pragma unroll
  for (int i = 0; i < 4; ++i) sum[i][0] = sum[i][1] = 0.0f;
  for (int first = 0; first < a.dim; first += kTilePiece) {
    __syncthreads();
    copy_piece<kTilePiece>(tile_a, a, first);
    copy_piece<kTilePiece>(tile_b, b, first);
    __syncthreads();
#pragma unroll 2
    for (int d = 0; d < kTilePiece; d += 4) {
      float left[4][4];
#pragma unroll
      for (int i = 0; i < 4; ++i) load(tile_a + (tile_row() + i) * kPiecePitch + d, left[i]);
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        float right[4];
        load(tile_b + (tile_lane() + 16 * j) * kPiecePitch + d, right);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
#pragma unroll
          for (int c = 0; c < 4; ++c) sum[i][j] = fmaf(left[i][c], right[c], sum[i][j]);
        }
      }
    }
  }
}

__device__ __forceinline__ void keep_weights(float* weights, const float (&values)[4][2]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int j = 0; j < 2; ++j) weights[(tile_row() + i) * kScorePitch + tile_lane() + 16 * j] = values[i][j];
  }
}
// sum += weights · others; columns tile_lane() · 4 + 64 · f and the next three.
template <int kColumns>
__device__ __forceinline__ void add_weighted(float (&sum)[4][kColumns / 64][4], const float* weights,
                                             const float* others) {
#pragma unroll 2
  for (int other = 0; other < kTileRows; ++other) {
    float left[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) left[i] = weights[(tile_row() + i) * kScorePitch + other];
#pragma unroll
    for (int f = 0; f < kColumns / 64; ++f) {
      float right[4];
      load(others + other * (kColumns + 4) + tile_lane() * 4 + 64 * f, right);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int c = 0; c < 4; ++c) sum[i][f][c] = fmaf(left[i], right[c], sum[i][f][c]);
      }
    }
  }
}
// Columns [first, first + kColumns) of rows of a head.
template <int kColumns, typename T>
__device__ __forceinline__ void store_columns(const float (&sum)[4][kColumns / 64][4],
                                              const float (&factor)[4], T* to, int64_t stride, int count,
                                              int dim, int first) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (tile_row() + i >= count) continue;
#pragma unroll
    for (int f = 0; f < kColumns / 64; ++f) {
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const int column = first + tile_lane() * 4 + 64 * f + c;
        if (column < dim) to[(tile_row() + i) * stride + column] = from_float<T>(sum[i][f][c] * factor[i]);
      }
    }
  }
}

// Scores of a head's rows after scale, cap and bias, and the cap's slope.
struct ScoreOf {
  float scale, softcap;
  const float*
      bias;  // of the head, so that bias[key - row] is that of a key and a row of the sequence; or null

  __device__ __forceinline__ ScoreOf(const PlainAttentionArgs& args, int sequence, int head)
      : scale(args.attention.scale), softcap(args.attention.softcap), bias(nullptr) {
    if (args.bias == nullptr) return;
    const int place = args.position != nullptr ? args.position[sequence] : 0;
    bias = args.bias + static_cast<int64_t>(head) * args.bias_width + args.bias_zero - place;
  }
  __device__ __forceinline__ float operator()(float product, int row, int key) const {
    float score = product * scale;
    if (softcap > 0.0f) score = softcap * tanhf(score / softcap);
    return bias != nullptr ? score + bias[key - row] : score;
  }
  // Of a score without bias: with a bias nothing is capped.
  __device__ __forceinline__ float slope(float score) const {
    const float bend = softcap > 0.0f ? score / softcap : 0.0f;
    return 1.0f - bend * bend;
  }
};

__device__ __forceinline__ int2 keys_of(const AttentionArgs& args, int sequence, int row) {
  return row < args.length ? *reinterpret_cast<const int2*>(
                                 args.rows + (static_cast<int64_t>(sequence) * args.length + row) * 2)
                           : make_int2(0, 0);
}
// The keys that any row of the range of tiles with this row sees.
__device__ __forceinline__ int4 keys_of_tile(const AttentionArgs& args, int sequence, int row) {
  const int tiles = (args.length + kTileOfRanges - 1) / kTileOfRanges;
  return *reinterpret_cast<const int4*>(args.tiles +
                                        (static_cast<int64_t>(sequence) * tiles + row / kTileOfRanges) * 4);
}

template <typename T, int kColumns>
__device__ __forceinline__ void plain_forward(const PlainAttentionArgs& plain) {
  extern __shared__ __align__(16) uint8_t plain_shared[];
  PlainTiles<kColumns>& tiles = *reinterpret_cast<PlainTiles<kColumns>*>(plain_shared);
  const AttentionArgs& args = plain.attention;
  const int row0 = static_cast<int>(blockIdx.x) * kTileRows, head = static_cast<int>(blockIdx.y),
            sequence = static_cast<int>(blockIdx.z) / plain.slices,
            column0 = static_cast<int>(blockIdx.z) % plain.slices * kColumns,
            kv_head = head / (args.heads / args.kv_heads);
  const int64_t row = static_cast<int64_t>(sequence) * args.length + row0,
                key_row = static_cast<int64_t>(args.entries != nullptr ? args.entries[sequence] : sequence) *
                          args.kv_length;
  const int4 range = keys_of_tile(args, sequence, row0);
  const ScoreOf score(plain, sequence, head);
  const RowsOfHead<T> q =
      rows_of_head<T>(args.q, row, args.q_stride, head, args.head_dim, args.length - row0);
  float sum[4][kColumns / 64][4] = {}, most[4], total[4] = {};
  int2 seen[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) most[i] = -INFINITY, seen[i] = keys_of(args, sequence, row0 + tile_row() + i);
  for (int key0 = range.x / kTileRows * kTileRows; key0 < range.y; key0 += kTileRows) {
    // Later rows may hold NaN, which a weight of 0 does not remove.
    const int count = range.y - key0;
    float scores[4][2];
    multiply_heads<T>(scores, tiles.a, tiles.b, q,
                      rows_of_head<T>(args.k, key_row + key0, args.k_stride, kv_head, args.head_dim, count));
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float now = most[i];
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int key = key0 + tile_lane() + 16 * j;
        scores[i][j] =
            key >= seen[i].x && key < seen[i].y ? score(scores[i][j], row0 + tile_row() + i, key) : -INFINITY;
        now = fmaxf(now, scores[i][j]);
      }
      for (int mask = 8; mask > 0; mask /= 2) now = fmaxf(now, shuffle_xor(now, mask));
      const float shift = now == -INFINITY ? 0.0f : now, shrink = expf(most[i] - shift);
      most[i] = now;
      total[i] *= shrink;
#pragma unroll
      for (int j = 0; j < 2; ++j) total[i] += scores[i][j] = expf(scores[i][j] - shift);
#pragma unroll
      for (int f = 0; f < kColumns / 64; ++f) {
#pragma unroll
        for (int c = 0; c < 4; ++c) sum[i][f][c] *= shrink;
      }
    }
    keep_weights(tiles.weights, scores);
    copy_piece<kColumns>(
        tiles.others, rows_of_head<T>(args.v, key_row + key0, args.v_stride, kv_head, args.value_dim, count),
        column0);
    __syncthreads();
    add_weighted<kColumns>(sum, tiles.weights, tiles.others);
  }
  float factor[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    for (int mask = 8; mask > 0; mask /= 2) total[i] += shuffle_xor(total[i], mask);
    if (args.sinks != nullptr) {
      // The sink acts as one more score without a value.
      const float sink = args.sinks[head], high = fmaxf(most[i], sink),
                  shrink = most[i] == -INFINITY ? 0.0f : expf(most[i] - high),
                  all = total[i] * shrink + expf(sink - high);
      factor[i] = shrink / all;
      most[i] = high + logf(all);
    } else {
      factor[i] = total[i] > 0.0f ? 1.0f / total[i] : 0.0f;
      most[i] = total[i] > 0.0f ? most[i] + logf(total[i]) : -INFINITY;
    }
    const int at = row0 + tile_row() + i;
    if (tile_lane() == 0 && column0 == 0 && at < args.length)
      args.lse[(static_cast<int64_t>(sequence) * args.heads + head) * args.length + at] = most[i];
  }
  store_columns<kColumns>(
      sum, factor,
      static_cast<T*>(args.out) + row * args.out_stride + static_cast<int64_t>(head) * args.value_dim,
      args.out_stride, args.length - row0, args.value_dim, column0);
}

// Scores of a block's 32 rows and 32 rows of the other side. kQueriesOwn: the block's rows are queries. Leaves in `weights` the
// weights, or, with kSlopes, the gradients of the scores before the scale.
template <typename T, bool kQueriesOwn, bool kSlopes, int kColumns>
__device__ __forceinline__ void plain_weights(const PlainAttentionArgs& plain, int sequence, int head,
                                              int query0, int key0, PlainTiles<kColumns>& tiles) {
  const AttentionArgs& args = plain.attention;
  const int kv_head = head / (args.heads / args.kv_heads);
  const int64_t query_row = static_cast<int64_t>(sequence) * args.length + query0,
                key_row = static_cast<int64_t>(sequence) * args.kv_length + key0;
  const RowsOfHead<T> q =
      rows_of_head<T>(args.q, query_row, args.q_stride, head, args.head_dim, args.length - query0);
  const RowsOfHead<T> k =
      rows_of_head<T>(args.k, key_row, args.k_stride, kv_head, args.head_dim, args.kv_length - key0);
  float weights[4][2], gradients[4][2] = {};
  multiply_heads<T>(weights, tiles.a, tiles.b, kQueriesOwn ? q : k, kQueriesOwn ? k : q);
  if constexpr (kSlopes) {
    const RowsOfHead<T> dout =
        rows_of_head<T>(args.dout, query_row, args.out_stride, head, args.value_dim, args.length - query0);
    const RowsOfHead<T> v =
        rows_of_head<T>(args.v, key_row, args.v_stride, kv_head, args.value_dim, args.kv_length - key0);
    multiply_heads<T>(gradients, tiles.a, tiles.b, kQueriesOwn ? dout : v, kQueriesOwn ? v : dout);
  }
  const ScoreOf score(plain, sequence, head);
  const int64_t first = (static_cast<int64_t>(sequence) * args.heads + head) * args.length;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const int own = tile_row() + i, other = tile_lane() + 16 * j;
      const int query = query0 + (kQueriesOwn ? own : other), key = key0 + (kQueriesOwn ? other : own);
      const int2 seen = keys_of(args, sequence, query);
      float result = 0.0f;
      if (key >= seen.x && key < seen.y) {
        const float value = score(weights[i][j], query, key);
        result = expf(value - args.lse[first + query]);
        if constexpr (kSlopes) result *= score.slope(value) * (gradients[i][j] - args.delta[first + query]);
      }
      weights[i][j] = result;
    }
  }
  keep_weights(tiles.weights, weights);
}

template <typename T, int kColumns>
__device__ __forceinline__ void plain_queries(const PlainAttentionArgs& plain) {
  extern __shared__ __align__(16) uint8_t plain_shared[];
  PlainTiles<kColumns>& tiles = *reinterpret_cast<PlainTiles<kColumns>*>(plain_shared);
  const AttentionArgs& args = plain.attention;
  const int row0 = static_cast<int>(blockIdx.x) * kTileRows, head = static_cast<int>(blockIdx.y),
            sequence = static_cast<int>(blockIdx.z) / plain.slices,
            column0 = static_cast<int>(blockIdx.z) % plain.slices * kColumns,
            kv_head = head / (args.heads / args.kv_heads);
  const int4 range = keys_of_tile(args, sequence, row0);
  float dq[4][kColumns / 64][4] = {};
  for (int key0 = range.x / kTileRows * kTileRows; key0 < range.y; key0 += kTileRows) {
    plain_weights<T, true, true>(plain, sequence, head, row0, key0, tiles);
    copy_piece<kColumns>(tiles.others,
                         rows_of_head<T>(args.k, static_cast<int64_t>(sequence) * args.kv_length + key0,
                                         args.k_stride, kv_head, args.head_dim, args.kv_length - key0),
                         column0);
    __syncthreads();
    add_weighted<kColumns>(dq, tiles.weights, tiles.others);
  }
  const float factor[4] = {args.scale, args.scale, args.scale, args.scale};
  store_columns<kColumns>(dq, factor,
                          static_cast<T*>(args.dq) +
                              (static_cast<int64_t>(sequence) * args.length + row0) * args.q_stride +
                              static_cast<int64_t>(head) * args.head_dim,
                          args.q_stride, args.length - row0, args.head_dim, column0);
}

// dk or dv of 32 keys.
template <typename T, int kColumns, bool kDk>
__device__ __forceinline__ void plain_keys(const PlainAttentionArgs& plain) {
  extern __shared__ __align__(16) uint8_t plain_shared[];
  PlainTiles<kColumns>& tiles = *reinterpret_cast<PlainTiles<kColumns>*>(plain_shared);
  const AttentionArgs& args = plain.attention;
  const int key0 = static_cast<int>(blockIdx.x) * kTileRows, kv_head = static_cast<int>(blockIdx.y),
            sequence = static_cast<int>(blockIdx.z) / plain.slices,
            column0 = static_cast<int>(blockIdx.z) % plain.slices * kColumns,
            group = args.heads / args.kv_heads;
  const int dim = kDk ? args.head_dim : args.value_dim;
  float sum[4][kColumns / 64][4] = {};
  for (int head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    for (int query0 = 0; query0 < args.length; query0 += kTileRows) {
      const int4 range = keys_of_tile(args, sequence, query0);
      if (range.x >= key0 + kTileRows || range.y <= key0) continue;
      plain_weights<T, false, kDk>(plain, sequence, head, query0, key0, tiles);
      copy_piece<kColumns>(
          tiles.others,
          rows_of_head<T>(kDk ? args.q : args.dout, static_cast<int64_t>(sequence) * args.length + query0,
                          kDk ? args.q_stride : args.out_stride, head, dim, args.length - query0),
          column0);
      __syncthreads();
      add_weighted<kColumns>(sum, tiles.weights, tiles.others);
    }
  }
  const float scale = kDk ? args.scale : 1.0f, factor[4] = {scale, scale, scale, scale};
  const int64_t stride = kDk ? args.k_stride : args.v_stride;
  store_columns<kColumns>(sum, factor,
                          static_cast<T*>(kDk ? args.dk : args.dv) +
                              (static_cast<int64_t>(sequence) * args.kv_length + key0) * stride +
                              static_cast<int64_t>(kv_head) * dim,
                          stride, args.kv_length - key0, dim, column0);
}

// The bias's gradient of a head: part blockIdx.x takes every bias_parts-th tile of all sequences' rows.
template <typename T>
__device__ __forceinline__ void plain_bias(const PlainAttentionArgs& plain) {
  extern __shared__ __align__(16) uint8_t plain_shared[];
  PlainTiles<64>& tiles = *reinterpret_cast<PlainTiles<64>*>(plain_shared);
  const AttentionArgs& args = plain.attention;
  const int head = static_cast<int>(blockIdx.y), thread = static_cast<int>(threadIdx.x);
  float* const to = plain.dbias + (static_cast<int64_t>(blockIdx.x) * args.heads + head) * plain.bias_width;
  for (int i = thread; i < plain.bias_width; i += kTileThreads) to[i] = 0.0f;
  const int of_rows = (args.length + kTileRows - 1) / kTileRows;
  for (int tile = static_cast<int>(blockIdx.x); tile < args.batch * of_rows; tile += plain.bias_parts) {
    const int sequence = tile / of_rows, row0 = tile % of_rows * kTileRows;
    const int4 range = keys_of_tile(args, sequence, row0);
    for (int key0 = range.x / kTileRows * kTileRows; key0 < range.y; key0 += kTileRows) {
      plain_weights<T, true, true>(plain, sequence, head, row0, key0, tiles);
      __syncthreads();
      // Thread d adds the diagonal of the keys d - 31 after their rows.
      const int distance = thread - (kTileRows - 1), column = plain.bias_zero + key0 - row0 + distance;
      if (distance < kTileRows && column >= 0 && column < plain.bias_width) {
        float sum = 0.0f;
        for (int row = max(0, -distance); row < min(kTileRows, kTileRows - distance); ++row)
          sum += tiles.weights[row * kScorePitch + row + distance];
        to[column] += sum;
      }
    }
  }
}

// delta: one warp per row of a head.
template <typename T>
__device__ __forceinline__ void plain_delta(const AttentionArgs& args) {
  const int64_t index = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  if (index >= static_cast<int64_t>(args.batch) * args.length * args.heads) return;
  const int64_t row = index / args.heads, head = index % args.heads,
                at = row * args.out_stride + head * args.value_dim;
  const T *out = static_cast<const T*>(args.out) + at, *dout = static_cast<const T*>(args.dout) + at;
  float sum = 0.0f;
  for (int c = lane; c < args.value_dim; c += kWarp) sum = fmaf(to_float(out[c]), to_float(dout[c]), sum);
  for (int mask = kWarp / 2; mask > 0; mask /= 2) sum += shuffle_xor(sum, mask);
  if (lane == 0) args.delta[(row / args.length * args.heads + head) * args.length + row % args.length] = sum;
}

// MIN: blocks per multiprocessor, which bounds the registers per thread; without it ptxas aims at more blocks than shared
// memory allows, and spills.
#define STRATA_PLAIN(NAME, MIN, ...)                                            \
  extern "C" __global__ void __launch_bounds__(kTileThreads, MIN)               \
      attention_plain_##NAME(const __grid_constant__ PlainAttentionArgs args) { \
    __VA_ARGS__(args);                                                          \
  }
#define STRATA_PLAIN_COLUMNS(TYPE, T, COLUMNS, FORWARD, BACKWARD)               \
  STRATA_PLAIN(forward_##TYPE##_##COLUMNS, FORWARD, plain_forward<T, COLUMNS>)  \
  STRATA_PLAIN(queries_##TYPE##_##COLUMNS, BACKWARD, plain_queries<T, COLUMNS>) \
  STRATA_PLAIN(dk_##TYPE##_##COLUMNS, BACKWARD, plain_keys<T, COLUMNS, true>)   \
  STRATA_PLAIN(dv_##TYPE##_##COLUMNS, BACKWARD, plain_keys<T, COLUMNS, false>)
#define STRATA_PLAIN_TYPE(TYPE, T)                                               \
  STRATA_PLAIN_COLUMNS(TYPE, T, 64, 4, 4)                                        \
  STRATA_PLAIN_COLUMNS(TYPE, T, 256, 2, 3)                                       \
  STRATA_PLAIN(bias_##TYPE, 4, plain_bias<T>)                                    \
  extern "C" __global__ void __launch_bounds__(256)                              \
      attention_plain_delta_##TYPE(const __grid_constant__ AttentionArgs args) { \
    plain_delta<T>(args);                                                        \
  }
STRATA_PLAIN_TYPE(f32, float)
STRATA_PLAIN_TYPE(bf16, BF16)

}  // namespace strata::gpu
