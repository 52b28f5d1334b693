// Tasks of sparse attention and the memory of one. Internal to sparse attention.
#pragma once

#include <algorithm>

#include "kernels/cpu/attention_tiles.h"
#include "kernels/cpu/sparse_attention.h"

namespace strata::cpu::sparse {

using attention::Carver;
using attention::ceil_div;
using attention::padded_columns;
using attention::tile_stride;

inline constexpr int64_t kTileKeys = 128;      // of a packed tile, forward
inline constexpr int64_t kGradTileKeys = 512;  // and backward: more pairs for each row that is packed again
inline constexpr int64_t kBlockRows = 64;  // of a block that adds to the gradients of a tile's keys together

struct Call {
  const SparseAttentionShape& shape;
  const SparseAttentionInputs& in;
  int64_t rows = 0;  // of a forward task
  void* out = nullptr;
  float *lse = nullptr, *mass = nullptr;
  float* task_greatest = nullptr;  // [forward tasks, heads], if the shape finds greatest scores
  SparseAttentionGradients to = {};
  const void* dout = nullptr;
  const void* given_out = nullptr;
  const float* given_lse = nullptr;

  int64_t group() const { return shape.heads / shape.kv_heads; }
  int64_t q_offset(int64_t row, int64_t head) const { return row * shape.q_stride + head * shape.head_dim; }
  int64_t out_offset(int64_t row, int64_t head) const { return (row * shape.heads + head) * shape.value_dim; }
  int64_t kv_base(int64_t sequence) const {
    return (in.kv_slot != nullptr ? in.kv_slot[sequence] : sequence) * shape.kv_batch_stride;
  }
  const int32_t* chosen(int64_t row) const { return in.chosen + row * shape.count; }
};

// Entries of a list before the -1.
inline int32_t length_of(const int32_t* chosen, int64_t count) {
  return static_cast<int32_t>(
      std::partition_point(chosen, chosen + count, [](int32_t key) { return key >= 0; }) - chosen);
}

struct ForwardScratch {
  ForwardScratch(Carver& carver, const SparseAttentionShape& s, int64_t rows)
      : score_stride(align_up(s.count, 16) + 16),
        q(carver.take<float>(rows * (s.heads / s.kv_heads) * tile_stride<float>(s.head_dim))),
        keys(carver.take<float>(kTileKeys * tile_stride<float>(std::max(s.head_dim, s.value_dim)))),
        scores(carver.take<float>(rows * (s.heads / s.kv_heads) * score_stride)),
        sums(carver.take<float>(rows * (s.heads / s.kv_heads) * tile_stride<float>(s.value_dim))),
        factors(carver.take<float>(rows * (s.heads / s.kv_heads))),
        at(carver.take<int32_t>(rows)),
        lengths(carver.take<int32_t>(rows)) {}
  int64_t score_stride;
  float* q;       // [rows, group, padded head_dim]
  float* keys;    // of a tile; then values
  float* scores;  // [rows, group, count]
  float* sums;    // [rows, group, padded value_dim]
  float* factors;
  int32_t *at, *lengths;  // of a row's list: entries before the tile; all
};

struct BackwardScratch {
  BackwardScratch(Carver& carver, const SparseAttentionShape& s)
      : keys(carver.take<float>(kGradTileKeys * tile_stride<float>(s.head_dim))),
        values(carver.take<float>(kGradTileKeys * tile_stride<float>(s.value_dim))),
        dkeys(carver.take<float>(kGradTileKeys * tile_stride<float>(s.head_dim))),
        dvalues(carver.take<float>(kGradTileKeys * tile_stride<float>(s.value_dim))),
        queries(carver.take<float>(kBlockRows * tile_stride<float>(s.head_dim))),
        dout(carver.take<float>(kBlockRows * tile_stride<float>(s.value_dim))),
        p(carver.take<float>(kGradTileKeys * kBlockRows)),
        ds(carver.take<float>(kGradTileKeys * kBlockRows)),
        pair_rows(carver.take<int32_t>(kGradTileKeys * kBlockRows)),
        pairs(carver.take<int32_t>(kGradTileKeys)),
        dq(carver.take<float>(s.heads / s.kv_heads * s.q_len * padded_columns<float>(s.head_dim))),
        lse(carver.take<float>(s.heads / s.kv_heads * s.q_len)),
        delta(carver.take<float>(s.heads / s.kv_heads * s.q_len)),
        at(carver.take<int32_t>(s.q_len)),
        lengths(carver.take<int32_t>(s.q_len)) {}
  float *keys, *values, *dkeys, *dvalues;
  float *queries, *dout;  // of a block of rows
  // The pairs of each key with rows of the block: number, rows, weights and gradients of scores.
  float *p, *ds;       // [keys, rows]
  int32_t* pair_rows;  // [keys, rows]
  int32_t* pairs;
  float* dq;           // [group, q_len, padded head_dim]
  float *lse, *delta;  // [group, q_len]; lse in units of log 2
  int32_t *at, *lengths;
};

inline int64_t forward_tasks(const SparseAttentionShape& shape, int64_t rows) {
  return shape.sequences * ceil_div(shape.q_len, rows);
}
// Tasks, compiled for every instruction set and dispatched at run time.
void forward_task(const Call& call, int64_t task, void* memory);
// All gradients of one (sequence, key–value head).
void backward_task(const Call& call, int64_t task, void* memory);

}  // namespace strata::cpu::sparse
