// How a call of the recurrence is split into tasks, and the memory of one. Internal to recurrences.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/attention_tiles.h"
#include "kernels/cpu/recurrence.h"
#include "kernels/cpu/recurrence_pairs.h"

namespace strata::cpu::recurrence {

using attention::Carver;
using attention::ceil_div;
using attention::padded_columns;
using attention::tile_stride;

inline constexpr int64_t kBlock =
    16;  // rows of a block that the triangular solve inverts, and that share an anchor

inline constexpr int64_t kMostKeys = 1024;  // key_dim

// Sizes of a task's matrices.
struct Sizes {
  int64_t rows;          // of a chunk, padded to whole blocks
  int64_t keys, values;  // padded
  int64_t key_stride, value_stride, pair_stride;

  explicit Sizes(const RecurrenceShape& s, int64_t more_values = 0)
      : rows(align_up(std::max<int64_t>(1, std::min(s.chunk, s.rows)), kBlock)),
        keys(padded_columns<float>(s.key_dim)),
        values(padded_columns<float>(s.value_dim) + more_values),
        key_stride(tile_stride<float>(keys)),
        value_stride(tile_stride<float>(values)),
        pair_stride(tile_stride<float>(rows)) {}
  int64_t blocks() const { return rows / kBlock; }
  int64_t state() const { return keys * value_stride; }
};

// A chunk of a key head, and of one of its value heads.
struct ChunkScratch {
  ChunkScratch(Carver& carver, const RecurrenceShape& s, const Sizes& n)
      : q(carver.take<float>(n.rows * n.key_stride)),
        k(carver.take<float>(n.rows * n.key_stride)),
        keys_across(carver.take<float>(n.keys * n.pair_stride)),
        q_rsqrt(carver.take<float>(n.rows)),
        k_rsqrt(carver.take<float>(n.rows)),
        p(carver.take<float>(n.rows * n.pair_stride)),
        a(carver.take<float>(n.rows * n.pair_stride)),
        inverse(carver.take<float>(n.rows * kBlock)),
        rest(carver.take<float>(n.rows * n.value_stride)),
        u(carver.take<float>(n.rows * n.value_stride)),
        f(carver.take<float>(n.rows * n.value_stride)),
        o(carver.take<float>(n.rows * n.value_stride)),
        beta(carver.take<float>(n.rows)),
        row_decay(carver.take<float>(n.rows)),
        rest_decay(carver.take<float>(n.rows)),
        state_decay(carver.take<float>(n.keys)),
        high(carver.take<float>(n.rows)),
        low(carver.take<float>(n.rows)),
        documents(carver.take<float>(n.rows)) {
    if (s.by_channel) {
      for (float** of : {&gates, &before, &to_end, &from_begin, &q_begin, &k_begin, &k_end, &block_rows})
        *of = carver.take<float>(n.rows * n.key_stride);
      block_decay = carver.take<float>(n.blocks() * n.keys);
    } else {
      for (float** of : {&decay, &keys_keys, &queries_keys}) *of = carver.take<float>(n.rows * n.pair_stride);
    }
    const int64_t most = std::max({n.rows, n.keys, n.values});
    if (s.pairs) rounded = carver.take<BF16>(pair_values(most, most, most));
  }
  float *q, *k;        // [rows, K], as the state meets them
  float* keys_across;  // k [K, rows]; by channel: decayed to the begin of a block
  float *q_rsqrt, *k_rsqrt;
  float *p, *a;             // [rows, rows]
  float* inverse;           // of the blocks on the diagonal of the solve, [rows, 16]
  float *rest, *u, *f, *o;  // [rows, V]; rest: v, then the right side of the solve
  float* beta;
  // Decays e^{G_i} and e^{G_C - G_j} of the rows, and e^{G_C} of the state's.
  float *row_decay, *rest_decay, *state_decay;
  float *high, *low;  // G / ln 2 in two parts
  float* documents;   // number of documents that began up to a row
  // A decay a head: e^{G_i - G_j}; k kᵀ and q kᵀ without decays.
  float *decay = nullptr, *keys_keys = nullptr, *queries_keys = nullptr;
  // A decay a channel, [rows, K]: e^g; from before the block to the row; from the row to the block's
  // end; from before the chunk to the row. And q, k with the latter; k to the chunk's end; rows of one block.
  float *gates = nullptr, *before = nullptr, *to_end = nullptr, *from_begin = nullptr;
  float *q_begin = nullptr, *k_begin = nullptr, *k_end = nullptr, *block_rows = nullptr;
  float* block_decay = nullptr;  // of whole blocks, [blocks, K]
  BF16* rounded = nullptr;       // operands of one matmul
};

// Value heads of a key head that a task takes, so that they share the work on keys: two, and up to four
// if 64 tasks are left. A matter of sizes, not of threads, because it decides the order of sums.
inline int64_t heads_of_task(const RecurrenceShape& s) {
  const int64_t group = s.value_heads / s.key_heads;
  return std::min(group, std::clamp<int64_t>(s.ranges * s.value_heads / 64, 2, 4));
}
inline int64_t tasks_of_group(const RecurrenceShape& s) {
  return ceil_div(s.value_heads / s.key_heads, heads_of_task(s));
}
// Rows [first, first + heads) of the value heads of key head `key_head`.
struct TaskHeads {
  int64_t range, key_head, share, first, count;
  TaskHeads(const RecurrenceShape& s, int64_t task) {
    const int64_t shares = tasks_of_group(s), each = heads_of_task(s), group = s.value_heads / s.key_heads;
    share = task % shares;
    key_head = task / shares % s.key_heads;
    range = task / shares / s.key_heads;
    first = key_head * group + share * each;
    count = std::min(each, group - share * each);
  }
};

struct Call {
  const RecurrenceShape& shape;
  const RecurrenceInputs& in;
  const PairMatmul* pairs = &pair_matmul();
  void* out = nullptr;  // forward
  const CachedStates* cache = nullptr;
  float* map = nullptr;
  RecurrenceGradients to = {};  // backward
  const void* dout = nullptr;
  const float* dlast = nullptr;
  float* shares =
      nullptr;  // [tasks_of_group, ranges · rows, key heads, 2 · K]: dq and dk of the shares of a group
  float* dbefore = nullptr;  // of recurrence_state_gradient()

  int64_t tasks() const { return shape.ranges * shape.key_heads * tasks_of_group(shape); }
  int64_t state_size() const { return shape.key_dim * shape.value_dim; }
  int64_t state_offset(int64_t range, int64_t head) const {
    return (range * shape.value_heads + head) * state_size();
  }
};

// Memory of one task.
struct ForwardScratch {
  ForwardScratch(Carver& carver, const RecurrenceShape& s, const Sizes& n)
      : chunk(carver, s, n), states(carver.take<float>(heads_of_task(s) * n.state())) {}
  ChunkScratch chunk;
  float* states;  // [heads, K, V]
};
struct BackwardScratch {
  BackwardScratch(Carver& carver, const RecurrenceShape& s, const Sizes& n, bool states_alone)
      : chunk(carver, s, n),
        dstates(carver.take<float>(heads_of_task(s) * n.state())),
        dout(carver.take<float>(n.rows * n.value_stride)),
        scaled(carver.take<float>(n.rows * n.value_stride)),
        du(carver.take<float>(n.rows * n.value_stride)),
        y(carver.take<float>(n.rows * n.value_stride)),
        z(carver.take<float>(n.rows * n.value_stride)) {
    if (states_alone) return;
    const int64_t heads = heads_of_task(s), chunks = ceil_div(s.rows, s.chunk);
    states = carver.take<float>(heads * (chunks + 1) * n.state());
    kept = carver.take<float>(heads * chunks * n.rows * n.value_stride);
    u_across = carver.take<float>(n.values * n.pair_stride);
    dp = carver.take<float>(n.rows * n.pair_stride);
    da = carver.take<float>(n.rows * n.pair_stride);
    state_across = carver.take<float>(n.values * n.key_stride);
    dstate_across = carver.take<float>(n.values * n.key_stride);
    x = carver.take<float>(n.rows * n.key_stride);
    dq = carver.take<float>(n.rows * n.key_stride);
    dk = carver.take<float>(n.rows * n.key_stride);
    if (s.by_channel) {
      column = carver.take<float>(n.rows * n.key_stride);
      ends = carver.take<float>(n.rows * n.key_stride);
      dend = carver.take<float>(n.keys);
    } else {
      dpairs_q = carver.take<float>(n.rows * n.pair_stride);
      dpairs_k = carver.take<float>(n.rows * n.pair_stride);
      columns = carver.take<float>(n.rows);
    }
    dsums = carver.take<double>(n.rows);
  }
  ChunkScratch chunk;
  float* dstates;                      // [heads, K, V]
  float *dout, *scaled, *du, *y, *z;   // [rows, V]
  float* states = nullptr;             // [heads, chunks, K, V], the last of which is not used further
  float* kept = nullptr;               // F, or u without delta, [heads, chunks, rows, V]
  float* u_across = nullptr;           // [V, rows]
  float *dp = nullptr, *da = nullptr;  // [rows, rows]
  float *state_across = nullptr, *dstate_across = nullptr;  // [V, K]
  float *x = nullptr, *dq = nullptr, *dk = nullptr;         // [rows, K]
  float *column = nullptr, *ends = nullptr, *dend = nullptr;
  float *dpairs_q = nullptr, *dpairs_k = nullptr, *columns = nullptr;
  double* dsums = nullptr;  // of G
};

// Tasks, compiled for every instruction set and dispatched at run time.
void forward_task(const Call& call, int64_t task, void* memory);
void map_task(const Call& call, int64_t task, void* memory);  // a range and value head
void cached_row(const Call& call, int64_t task);              // a sequence of one row, and value head
void backward_task(const Call& call, int64_t task, void* memory);
void state_gradient_task(const Call& call, int64_t task, void* memory);
// Adds up the shares of a group, for `rows` rows from `first` on.
void finish_keys(const Call& call, int64_t first, int64_t rows);
// to[K, V] = M or Mᵀ [K, K] · from [K, V] + more; of one head.
void compose_step(const RecurrenceMaps& shape, float* to, const float* m, bool across, const float* from,
                  const float* more);

}  // namespace strata::cpu::recurrence
