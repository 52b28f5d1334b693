// Tasks of the indexer's loss and the memory of one. Internal to it.
#pragma once

#include <algorithm>

#include "kernels/cpu/attention_tiles.h"
#include "kernels/cpu/indexer_loss.h"

namespace strata::cpu::indexer {

using attention::Carver;
using attention::ceil_div;
using attention::kKeys;
using attention::kScoreStride;
using attention::padded_columns;
using attention::tile_stride;

inline constexpr int64_t kLossRows = attention::kRows;  // of a task

struct LossCall {
  const IndexerLossShape& shape;
  const IndexerLossInputs& in;
  double* sums = nullptr;  // of tasks, forward
  IndexerLossGradients to = {};
  float seed = 1;
  float* dkeys = nullptr;  // [sequences, parts, kv_len in whole blocks, padded size], backward
  int64_t parts = 1;       // of the blocks of a sequence; part p has every parts-th block from p on

  int64_t blocks() const { return ceil_div(shape.rows.q_len, kLossRows); }
  int64_t key_columns() const { return padded_columns<float>(shape.rows.size); }
  int64_t keys_of_part() const { return align_up(shape.rows.kv_len, kKeys) * key_columns(); }
};
// Independent of threads: it decides the order of sums.
inline int64_t parts_of_sequence(const IndexerShape& s) {
  const int64_t blocks = ceil_div(std::max<int64_t>(1, s.q_len), kLossRows);
  return std::clamp<int64_t>(16 / std::max<int64_t>(1, s.sequences), 1, std::min<int64_t>(8, blocks));
}

// Of the loss over all keys: a block of rows.
struct AllKeysScratch {
  AllKeysScratch(Carver& carver, const IndexerLossShape& shape, bool backward)
      : score_stride(align_up(shape.rows.kv_len, kKeys) + 16),
        head_stride(kLossRows * tile_stride<float>(shape.rows.size)),
        q(carver.take<float>(shape.rows.heads * head_stride)),
        weights(carver.take<float>(kLossRows * shape.rows.heads)),
        main_q(carver.take<float>(kLossRows * tile_stride<float>(shape.main_dim))),
        keys_t(carver.take<float>(kKeys * std::max(shape.rows.size, shape.main_dim))),
        scores(carver.take<float>(kLossRows * score_stride)),
        mass(carver.take<float>(kLossRows * score_stride)),
        totals(carver.take<float>(kLossRows)),
        log_sums(carver.take<float>(kLossRows)) {
    if (!backward) return;
    keys = carver.take<float>(kKeys * tile_stride<float>(shape.rows.size));
    dots = carver.take<float>(kLossRows * kScoreStride);
    dq = carver.take<float>(shape.rows.heads * head_stride);
    dweights = carver.take<float>(kLossRows * shape.rows.heads);
  }
  int64_t score_stride, head_stride;
  float* q;              // [heads, rows, padded size]
  float* weights;        // [rows, heads], with the scale
  float* main_q;         // of one head
  float* keys_t;         // panels of a block of keys
  float *scores, *mass;  // [rows, keys]; backward: scores become their gradients
  float *totals, *log_sums;
  float *keys = nullptr, *dots = nullptr, *dq = nullptr, *dweights = nullptr;
};

// Of the loss over chosen keys: one row.
struct ChosenScratch {
  ChosenScratch(Carver& carver, const IndexerShape& s, bool backward)
      : count(align_up(s.count, 16)),
        heads(align_up(s.heads, 16)),
        pair_stride(tile_stride<float>(count)),
        q(carver.take<float>(heads * tile_stride<float>(s.size))),
        keys(carver.take<float>(count * tile_stride<float>(s.size))),
        keys_t(carver.take<float>(padded_columns<float>(s.size) * pair_stride)),
        dots(carver.take<float>(heads * pair_stride)),
        scores(carver.take<float>(count)) {
    if (!backward) return;
    dq = carver.take<float>(heads * tile_stride<float>(s.size));
    dkeys = carver.take<float>(count * tile_stride<float>(s.size));
  }
  int64_t count, heads, pair_stride;
  float *q, *keys, *keys_t;  // [heads, size], [count, size], [size, count]
  float* dots;               // [heads, count]
  float* scores;
  float *dq = nullptr, *dkeys = nullptr;
};

// Tasks, compiled for every instruction set and dispatched at run time: a block of rows; a part of a sequence.
void loss_task(const LossCall& call, int64_t task, void* memory);
void loss_gradient_task(const LossCall& call, int64_t task, void* memory);
// Adds up the parts' gradients of keys [first, first + keys) of a sequence.
void sum_key_gradients(const LossCall& call, int64_t sequence, int64_t first, int64_t keys);

}  // namespace strata::cpu::indexer
