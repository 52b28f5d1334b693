// fp32 attention, forward and backward: tiled like the bf16 kernels, with scalar multiplications. A block of
// 128 threads has 32 rows. Each thread computes 4 rows of a matmul and every sixteenth column, or every
// sixteenth group of four columns.
#include "kernels/gpu/args.h"
#include "kernels/gpu/vector.cuh"

namespace strata::gpu {

constexpr int kPlainRows = 32, kPlainThreads = 128;

template <int kDimOf>
struct PlainShape {
  static constexpr int kDim = kDimOf, kOthers = kDim > 128 ? 32 : 64;  // rows of the other side at a time
  static constexpr int kPitch = kDim + 4, kWeightPitch = kOthers + 4;
  static constexpr int kColumns = kOthers / 16, kFours = kDim / 64;  // per thread
};

// Copies a tile [kRows][kDim] from rows of a head; zero beyond them.
template <typename Shape, int kRows>
__device__ __forceinline__ void copy_plain(float* tile, const float* from, int64_t stride, int rows,
                                           int dim) {
  constexpr int kPieces = Shape::kDim / 4;
  for (int i = static_cast<int>(threadIdx.x); i < kRows * kPieces; i += kPlainThreads) {
    const int row = i / kPieces, column = i % kPieces * 4;
    float four[4] = {};
    if (row < rows) {
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        if (column + c < dim) four[c] = from[row * stride + column + c];
      }
    }
    store(tile + row * Shape::kPitch + column, four);
  }
}

__device__ __forceinline__ int plain_row() {
  return static_cast<int>(threadIdx.x) / 16 * 4;
}
__device__ __forceinline__ int plain_lane() {
  return static_cast<int>(threadIdx.x) % 16;
}

// sum[i][j] = the dot product of row plain_row() + i of a and row plain_lane() + 16 · j of b.
template <typename Shape>
__device__ __forceinline__ void multiply_plain(float (&sum)[4][Shape::kColumns], const float* a,
                                               const float* b) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int j = 0; j < Shape::kColumns; ++j) sum[i][j] = 0.0f;
  }
  for (int d = 0; d < Shape::kDim; d += 4) {
    float left[4][4];
#pragma unroll
    for (int i = 0; i < 4; ++i) load(a + (plain_row() + i) * Shape::kPitch + d, left[i]);
#pragma unroll
    for (int j = 0; j < Shape::kColumns; ++j) {
      float right[4];
      load(b + (plain_lane() + 16 * j) * Shape::kPitch + d, right);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int c = 0; c < 4; ++c) sum[i][j] = fmaf(left[i][c], right[c], sum[i][j]);
      }
    }
  }
}

// Stores the result of multiply_plain as weights[row][other].
template <typename Shape>
__device__ __forceinline__ void keep_plain(float* weights, const float (&sum)[4][Shape::kColumns]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int j = 0; j < Shape::kColumns; ++j)
      weights[(plain_row() + i) * Shape::kWeightPitch + plain_lane() + 16 * j] = sum[i][j];
  }
}
// sum += weights · b; columns plain_lane() · 4 + 64 · f and the next three.
template <typename Shape>
__device__ __forceinline__ void add_plain(float (&sum)[4][Shape::kFours][4], const float* weights,
                                          const float* b) {
  for (int other = 0; other < Shape::kOthers; ++other) {
    float left[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) left[i] = weights[(plain_row() + i) * Shape::kWeightPitch + other];
#pragma unroll
    for (int f = 0; f < Shape::kFours; ++f) {
      float right[4];
      load(b + other * Shape::kPitch + plain_lane() * 4 + 64 * f, right);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int c = 0; c < 4; ++c) sum[i][f][c] = fmaf(left[i], right[c], sum[i][f][c]);
      }
    }
  }
}
template <typename Shape>
__device__ __forceinline__ void store_plain(const float (&sum)[4][Shape::kFours][4], const float (&factor)[4],
                                            float* to, int64_t stride, int rows, int dim) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (plain_row() + i >= rows) continue;
#pragma unroll
    for (int f = 0; f < Shape::kFours; ++f) {
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const int column = plain_lane() * 4 + 64 * f + c;
        if (column < dim) to[(plain_row() + i) * stride + column] = sum[i][f][c] * factor[i];
      }
    }
  }
}

// A score after scale and cap, and the cap's slope.
struct PlainScore {
  float scale, softcap;
  __device__ __forceinline__ float operator()(float product) const {
    const float score = product * scale;
    return softcap > 0.0f ? softcap * tanhf(score / softcap) : score;
  }
  __device__ __forceinline__ float slope(float score) const {
    const float bend = softcap > 0.0f ? score / softcap : 0.0f;
    return 1.0f - bend * bend;
  }
};

__device__ __forceinline__ const float* plain_rows(const void* matrix, int64_t row, int64_t stride, int head,
                                                   int dim) {
  return static_cast<const float*>(matrix) + row * stride + static_cast<int64_t>(head) * dim;
}
__device__ __forceinline__ int2 plain_keys(const AttentionArgs& args, int sequence, int row) {
  return row < args.length ? *reinterpret_cast<const int2*>(
                                 args.rows + (static_cast<int64_t>(sequence) * args.length + row) * 2)
                           : make_int2(0, 0);
}
// The keys that any of the block's rows sees, from the tiles of 64 rows.
__device__ __forceinline__ int4 plain_range(const AttentionArgs& args, int sequence, int row) {
  const int tiles = (args.length + 63) / 64;
  return *reinterpret_cast<const int4*>(args.tiles + (static_cast<int64_t>(sequence) * tiles + row / 64) * 4);
}

template <typename Shape>
__device__ __forceinline__ void plain_forward(const AttentionArgs& args) {
  extern __shared__ __align__(16) float plain_shared[];
  float *q = plain_shared, *k = q + kPlainRows * Shape::kPitch, *v = k + Shape::kOthers * Shape::kPitch,
        *weights = v + Shape::kOthers * Shape::kPitch;
  const int row0 = static_cast<int>(blockIdx.x) * kPlainRows, head = static_cast<int>(blockIdx.y),
            sequence = static_cast<int>(blockIdx.z), kv_head = head / (args.heads / args.kv_heads);
  const int64_t row = static_cast<int64_t>(sequence) * args.length + row0,
                key_row = static_cast<int64_t>(args.entries != nullptr ? args.entries[sequence] : sequence) *
                          args.kv_length;
  const int4 range = plain_range(args, sequence, row0);
  const PlainScore score{args.scale, args.softcap};
  copy_plain<Shape, kPlainRows>(q, plain_rows(args.q, row, args.q_stride, head, args.head_dim), args.q_stride,
                                args.length - row0, args.head_dim);
  float sum[4][Shape::kFours][4] = {}, most[4], total[4] = {};
  int2 seen[4];
#pragma unroll
  for (int i = 0; i < 4; ++i)
    most[i] = -INFINITY, seen[i] = plain_keys(args, sequence, row0 + plain_row() + i);
  for (int key0 = range.x / Shape::kOthers * Shape::kOthers; key0 < range.y; key0 += Shape::kOthers) {
    __syncthreads();
    // Later rows may hold NaN, which a weight of 0 does not remove.
    copy_plain<Shape, Shape::kOthers>(
        k, plain_rows(args.k, key_row + key0, args.k_stride, kv_head, args.head_dim), args.k_stride,
        range.y - key0, args.head_dim);
    copy_plain<Shape, Shape::kOthers>(
        v, plain_rows(args.v, key_row + key0, args.v_stride, kv_head, args.value_dim), args.v_stride,
        range.y - key0, args.value_dim);
    __syncthreads();
    float scores[4][Shape::kColumns];
    multiply_plain<Shape>(scores, q, k);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float now = most[i];
#pragma unroll
      for (int j = 0; j < Shape::kColumns; ++j) {
        const int key = key0 + plain_lane() + 16 * j;
        scores[i][j] = key >= seen[i].x && key < seen[i].y ? score(scores[i][j]) : -INFINITY;
        now = fmaxf(now, scores[i][j]);
      }
      for (int mask = 8; mask > 0; mask /= 2) now = fmaxf(now, shuffle_xor(now, mask));
      const float shift = now == -INFINITY ? 0.0f : now, shrink = expf(most[i] - shift);
      most[i] = now;
      total[i] *= shrink;
#pragma unroll
      for (int j = 0; j < Shape::kColumns; ++j) total[i] += scores[i][j] = expf(scores[i][j] - shift);
#pragma unroll
      for (int f = 0; f < Shape::kFours; ++f) {
#pragma unroll
        for (int c = 0; c < 4; ++c) sum[i][f][c] *= shrink;
      }
    }
    keep_plain<Shape>(weights, scores);
    __syncthreads();
    add_plain<Shape>(sum, weights, v);
  }
  float factor[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    for (int mask = 8; mask > 0; mask /= 2) total[i] += shuffle_xor(total[i], mask);
    if (args.sinks != nullptr) {
      // The sink acts as one more score without a value.
      const float sink = args.sinks[head], high = fmaxf(most[i], sink),
                  shrink = most[i] == -INFINITY ? 0.0f : expf(most[i] - high);
      factor[i] = shrink / (total[i] * shrink + expf(sink - high));
      most[i] = high + logf(total[i] * shrink + expf(sink - high));
    } else {
      factor[i] = total[i] > 0.0f ? 1.0f / total[i] : 0.0f;
      most[i] = total[i] > 0.0f ? most[i] + logf(total[i]) : -INFINITY;
    }
    const int at = row0 + plain_row() + i;
    if (plain_lane() == 0 && at < args.length)
      args.lse[(static_cast<int64_t>(sequence) * args.heads + head) * args.length + at] = most[i];
  }
  store_plain<Shape>(
      sum, factor,
      static_cast<float*>(args.out) + row * args.out_stride + static_cast<int64_t>(head) * args.value_dim,
      args.out_stride, args.length - row0, args.value_dim);
}

// Scores and their gradients of the block's rows (a, da) against rows of the other side (b, db). kQueriesOwn:
// the block's rows are queries. Writes weights to p, unless it is null, and gradients of scores (before the
// scale) to ds.
template <typename Shape, bool kQueriesOwn>
__device__ __forceinline__ void plain_gradients(const AttentionArgs& args, int sequence, int head, int row0,
                                                int other0, const float* a, const float* da, const float* b,
                                                const float* db, float* p, float* ds) {
  const PlainScore score{args.scale, args.softcap};
  float weights[4][Shape::kColumns], gradients[4][Shape::kColumns];
  multiply_plain<Shape>(weights, a, b);
  multiply_plain<Shape>(gradients, da, db);
  const int64_t first = (static_cast<int64_t>(sequence) * args.heads + head) * args.length;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int j = 0; j < Shape::kColumns; ++j) {
      const int own = row0 + plain_row() + i, other = other0 + plain_lane() + 16 * j;
      const int query = kQueriesOwn ? own : other, key = kQueriesOwn ? other : own;
      const int2 seen = plain_keys(args, sequence, query);
      float weight = 0.0f, gradient = 0.0f;
      if (key >= seen.x && key < seen.y) {
        const float value = score(weights[i][j]);
        weight = expf(value - args.lse[first + query]);
        gradient = weight * score.slope(value) * (gradients[i][j] - args.delta[first + query]);
      }
      weights[i][j] = weight, gradients[i][j] = gradient;
    }
  }
  if (p != nullptr) keep_plain<Shape>(p, weights);
  keep_plain<Shape>(ds, gradients);
}

template <typename Shape>
__device__ __forceinline__ void plain_queries(const AttentionArgs& args) {
  extern __shared__ __align__(16) float plain_shared[];
  float *q = plain_shared, *dout = q + kPlainRows * Shape::kPitch, *k = dout + kPlainRows * Shape::kPitch,
        *v = k + Shape::kOthers * Shape::kPitch, *ds = v + Shape::kOthers * Shape::kPitch;
  const int row0 = static_cast<int>(blockIdx.x) * kPlainRows, head = static_cast<int>(blockIdx.y),
            sequence = static_cast<int>(blockIdx.z), kv_head = head / (args.heads / args.kv_heads);
  const int64_t row = static_cast<int64_t>(sequence) * args.length + row0,
                key_row = static_cast<int64_t>(sequence) * args.kv_length;
  const int4 range = plain_range(args, sequence, row0);
  copy_plain<Shape, kPlainRows>(q, plain_rows(args.q, row, args.q_stride, head, args.head_dim), args.q_stride,
                                args.length - row0, args.head_dim);
  copy_plain<Shape, kPlainRows>(dout, plain_rows(args.dout, row, args.out_stride, head, args.value_dim),
                                args.out_stride, args.length - row0, args.value_dim);
  float dq[4][Shape::kFours][4] = {};
  for (int key0 = range.x / Shape::kOthers * Shape::kOthers; key0 < range.y; key0 += Shape::kOthers) {
    __syncthreads();
    copy_plain<Shape, Shape::kOthers>(
        k, plain_rows(args.k, key_row + key0, args.k_stride, kv_head, args.head_dim), args.k_stride,
        args.kv_length - key0, args.head_dim);
    copy_plain<Shape, Shape::kOthers>(
        v, plain_rows(args.v, key_row + key0, args.v_stride, kv_head, args.value_dim), args.v_stride,
        args.kv_length - key0, args.value_dim);
    __syncthreads();
    plain_gradients<Shape, true>(args, sequence, head, row0, key0, q, dout, k, v, nullptr, ds);
    __syncthreads();
    add_plain<Shape>(dq, ds, k);
  }
  const float factor[4] = {args.scale, args.scale, args.scale, args.scale};
  store_plain<Shape>(
      dq, factor,
      static_cast<float*>(args.dq) + row * args.q_stride + static_cast<int64_t>(head) * args.head_dim,
      args.q_stride, args.length - row0, args.head_dim);
}

template <typename Shape>
__device__ __forceinline__ void plain_keys_and_values(const AttentionArgs& args) {
  extern __shared__ __align__(16) float plain_shared[];
  float *k = plain_shared, *v = k + kPlainRows * Shape::kPitch, *q = v + kPlainRows * Shape::kPitch,
        *dout = q + Shape::kOthers * Shape::kPitch, *p = dout + Shape::kOthers * Shape::kPitch,
        *ds = p + kPlainRows * Shape::kWeightPitch;
  const int key0 = static_cast<int>(blockIdx.x) * kPlainRows, kv_head = static_cast<int>(blockIdx.y),
            sequence = static_cast<int>(blockIdx.z);
  const int group = args.heads / args.kv_heads;
  const int64_t row = static_cast<int64_t>(sequence) * args.length,
                key_row = static_cast<int64_t>(sequence) * args.kv_length + key0;
  copy_plain<Shape, kPlainRows>(k, plain_rows(args.k, key_row, args.k_stride, kv_head, args.head_dim),
                                args.k_stride, args.kv_length - key0, args.head_dim);
  copy_plain<Shape, kPlainRows>(v, plain_rows(args.v, key_row, args.v_stride, kv_head, args.value_dim),
                                args.v_stride, args.kv_length - key0, args.value_dim);
  float dk[4][Shape::kFours][4] = {}, dv[4][Shape::kFours][4] = {};
  for (int head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    for (int query0 = 0; query0 < args.length; query0 += Shape::kOthers) {
      const int4 range = plain_range(args, sequence, query0);
      if (range.x >= key0 + kPlainRows || range.y <= key0) continue;
      __syncthreads();
      copy_plain<Shape, Shape::kOthers>(q,
                                        plain_rows(args.q, row + query0, args.q_stride, head, args.head_dim),
                                        args.q_stride, args.length - query0, args.head_dim);
      copy_plain<Shape, Shape::kOthers>(
          dout, plain_rows(args.dout, row + query0, args.out_stride, head, args.value_dim), args.out_stride,
          args.length - query0, args.value_dim);
      __syncthreads();
      plain_gradients<Shape, false>(args, sequence, head, key0, query0, k, v, q, dout, p, ds);
      __syncthreads();
      add_plain<Shape>(dv, p, dout);
      add_plain<Shape>(dk, ds, q);
    }
  }
  const float scales[4] = {args.scale, args.scale, args.scale, args.scale},
              ones[4] = {1.0f, 1.0f, 1.0f, 1.0f};
  store_plain<Shape>(
      dk, scales,
      static_cast<float*>(args.dk) + key_row * args.k_stride + static_cast<int64_t>(kv_head) * args.head_dim,
      args.k_stride, args.kv_length - key0, args.head_dim);
  store_plain<Shape>(
      dv, ones,
      static_cast<float*>(args.dv) + key_row * args.v_stride + static_cast<int64_t>(kv_head) * args.value_dim,
      args.v_stride, args.kv_length - key0, args.value_dim);
}

// delta: one warp per row of a head.
__device__ __forceinline__ void plain_delta(const AttentionArgs& args) {
  const int64_t index = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  if (index >= static_cast<int64_t>(args.batch) * args.length * args.heads) return;
  const int64_t row = index / args.heads, head = index % args.heads,
                at = row * args.out_stride + head * args.value_dim;
  const float *out = static_cast<const float*>(args.out) + at,
              *dout = static_cast<const float*>(args.dout) + at;
  float sum = 0.0f;
  for (int c = lane; c < args.value_dim; c += kWarp) sum = fmaf(out[c], dout[c], sum);
  for (int mask = kWarp / 2; mask > 0; mask /= 2) sum += shuffle_xor(sum, mask);
  if (lane == 0) args.delta[(row / args.length * args.heads + head) * args.length + row % args.length] = sum;
}
extern "C" __global__ void __launch_bounds__(256)
    attention_f32_delta(const __grid_constant__ AttentionArgs args) {
  plain_delta(args);
}

#define STRATA_PLAIN(NAME, DIM, BODY)                                            \
  extern "C" __global__ void __launch_bounds__(128)                              \
      attention_f32_##NAME##_##DIM(const __grid_constant__ AttentionArgs args) { \
    BODY<PlainShape<DIM>>(args);                                                 \
  }
#define STRATA_PLAIN_DIM(DIM)                        \
  STRATA_PLAIN(forward, DIM, plain_forward)          \
  STRATA_PLAIN(backward_queries, DIM, plain_queries) \
  STRATA_PLAIN(backward_keys, DIM, plain_keys_and_values)
STRATA_PLAIN_DIM(64)
STRATA_PLAIN_DIM(128)
STRATA_PLAIN_DIM(256)

}  // namespace strata::gpu
