// The parameters of the GPU's kernels: one struct each, as host and device both see it. Pointers are addresses of device memory; sizes
// and strides count elements. Rows are dense where no stride is given.
#pragma once

#include <cstdint>

namespace strata::gpu {

// c[m][n] (+)= a · b (+ bias[n]). Kernels are named by how their operands lie:
//   nt  a[m][k], b[n][k]   a linear layer's forward
//   nn  a[m][k], b[k][n]   its input gradient
//   tn  a[k][m], b[k][n]   its weight gradient
struct GemmArgs {
  const void* a;
  const void* b;
  void* c;
  const float* bias;  // may be null
  int64_t a_stride, b_stride, c_stride;
  int32_t m, n, k;
  int32_t accumulate;  // c += instead of c =
  // The depth is cut into `splits` parts of `split_depth` (a multiple of 64), whose sums lie one after another in fp32 from c on;
  // gemm_sum adds them in order. 1: c is the result.
  int32_t splits, split_depth;
};
// c[m][n] (+)= Σ parts (+ bias[n]), parts[splits][m][n].
struct GemmSumArgs {
  const float* parts;
  void* c;
  const float* bias;
  int64_t c_stride;
  int32_t m, n, splits, accumulate;
};

// Attention of `batch` sequences. q and out have `length` tokens a sequence and `heads` heads, k and v `kv_length` and `kv_heads`; heads
// lie one after another in a row, rows of a sequence and sequences at the strides. Query head h reads key–value head h / (heads /
// kv_heads). Row i sees the keys [rows[i][0], rows[i][1]), empty ranges included.
struct AttentionArgs {
  const void* q;
  const void* k;
  const void* v;
  void* out;           // forward: written
  float* lse;          // [batch, heads, length]; forward: written; -inf where a row sees nothing
  const float* sinks;  // [heads] or null; of forward
  const int32_t* rows;   // [batch, length, 2]
  const int32_t* tiles;  // [batch, tiles of 64 rows, 4]: the first and last + 1 of keys that any row sees, and that all rows see
  int64_t q_stride, k_stride, v_stride, out_stride;
  int32_t batch, length, kv_length, heads, kv_heads, head_dim, value_dim;
  float scale;    // of q · k
  float softcap;  // above 0: scores become softcap · tanh(score / softcap)
  // Backward. Gradients lie as q, k and v do, dout as out.
  const void* dout;
  float* delta;  // [batch, heads, length]: Σ dout · out
  void* dq;
  void* dk;
  void* dv;
};

// What rows see, from position, window and documents: writes `rows` and `tiles` of AttentionArgs.
struct AttentionRangesArgs {
  int32_t* rows;
  int32_t* tiles;
  const int32_t* kv_begin;  // [batch, length]: first key; null: 0
  const int32_t* kv_end;    // [batch, length]: last key + 1; null: kv_length
  int32_t batch, length, kv_length;
  int32_t causal, window;  // window: keys that a row sees, its own included; 0: no limit. Needs causal
};

}  // namespace strata::gpu
