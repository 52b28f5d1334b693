// Definitions shared within the attention family: tile sizes, operands of a call, keys that a row sees.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "base/error.h"
#include "kernels/cpu/attention.h"
#include "tensor/arena.h"

namespace strata::cpu::attention {

// Tile sizes are multiples of the register tiles of all instruction sets (4, 6, 8, 12 rows; up to 32
// columns).
inline constexpr int64_t kRows = 48;    // query rows of a score tile
inline constexpr int64_t kKeys = 192;   // keys of a score tile
inline constexpr int64_t kSplit = 512;  // keys of a decode task
inline constexpr int64_t kMostDecodeRows = 16;
// An odd number of cache lines, so that rows of a tile do not map to the same cache sets.
inline constexpr int64_t kScoreStride = kKeys + 16;

// Initial value of the sums in a matmul of tiles.
enum class Start { kZero, kSum, kScaledSum };

constexpr int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

// A head's size rounded up to whole cache lines, and the row stride of a packed tile; of T, fp32 or bf16.
template <typename T>
constexpr int64_t padded_columns(int64_t size) {
  return align_up(size, kBufferAlignment / static_cast<int64_t>(sizeof(T)));
}
template <typename T>
constexpr int64_t tile_stride(int64_t size) {
  constexpr int64_t kLine = kBufferAlignment / static_cast<int64_t>(sizeof(T));
  return (ceil_div(size, kLine) | 1) * kLine;
}

// Operands of one call. Gradients are null in a forward call.
struct Call {
  const AttentionPlan& plan;
  const AttentionShape& shape;
  const AttentionInputs& in;
  int64_t group = 1;    // query heads of a key–value head
  void* out = nullptr;  // forward
  float* lse = nullptr;
  float* chunk_greatest = nullptr;  // [batch, heads, query chunks]: greatest scores, if the shape finds these
  AttentionGradients to = {};       // backward
  const void* dout = nullptr;
  const float* row_lse = nullptr;  // lse in units of log 2, [batch, heads, q_len]
  const float* delta = nullptr;    // Σ_d dout · out, [batch, heads, q_len]
  // bf16 kernels: the one of the plan's arithmetic, if any.
  const struct PairProducts* pairs = nullptr;
  const struct TileProducts* tiles = nullptr;
  float* bias_sums = nullptr;  // [batch, heads, bias_width]: contribution of each sequence to dbias

  int64_t q_offset(int64_t b, int64_t i, int64_t head) const {
    return (b * shape.q_len + i) * shape.q_stride + head * shape.head_dim;
  }
  int64_t out_offset(int64_t b, int64_t i, int64_t head) const {
    return (b * shape.q_len + i) * shape.out_stride + head * shape.value_dim;
  }
  int64_t slot(int64_t b) const { return in.kv_slot != nullptr ? in.kv_slot[b] : b; }
  int64_t k_offset(int64_t b, int64_t j, int64_t kv_head) const {
    return slot(b) * shape.kv_batch_stride + j * shape.k_stride +
           (shape.one_kv_head ? 0 : kv_head * shape.head_dim);
  }
  int64_t v_offset(int64_t b, int64_t j, int64_t kv_head) const {
    return slot(b) * shape.kv_batch_stride + j * shape.v_stride +
           (shape.one_kv_head ? 0 : kv_head * shape.value_dim);
  }
  int64_t row_index(int64_t b, int64_t i, int64_t head) const {
    return (b * shape.heads + head) * shape.q_len + i;
  }
  // Position of query i among the keys.
  int64_t position(int64_t b, int64_t i) const {
    if (in.q_start == nullptr) return shape.kv_len - shape.q_len + i;
    const int64_t piece = shape.q_len / shape.q_pieces;
    return in.q_start[b * shape.q_pieces + i / piece] + i % piece;
  }
  // Number of keys below a position; does not decrease with the position.
  int64_t keys_below(int64_t b, int64_t position) const {
    if (in.kv_start == nullptr) return std::clamp<int64_t>(position, 0, shape.kv_len);
    const int64_t piece = shape.kv_len / shape.kv_pieces;
    int64_t keys = 0;
    for (int64_t p = 0; p < shape.kv_pieces; ++p)
      keys += std::clamp<int64_t>(position - in.kv_start[b * shape.kv_pieces + p], 0, piece);
    return keys;
  }
  // Index in a head's bias for query i and key j.
  int64_t bias_index(int64_t b, int64_t i, int64_t j) const { return shape.bias_zero + j - position(b, i); }
};

// Keys [lo[r], hi[r]) that query row first + r sees, for r < rows. Neither end decreases: a row that sees no
// key has an empty range at the end of the previous row's. Rows up to the next multiple of kRows get an empty
// range at the end.
inline void visible_keys(const Call& call, int64_t b, int64_t first, int64_t rows, int64_t* lo, int64_t* hi) {
  const AttentionShape& s = call.shape;
  const int64_t row = b * s.q_len + first;
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t position = call.position(b, first + r);
    int64_t begin = call.in.kv_begin != nullptr ? call.in.kv_begin[row + r] : 0;
    int64_t end = s.causal ? position + 1 : std::numeric_limits<int64_t>::max();
    if (call.in.kv_end != nullptr) end = std::min<int64_t>(end, call.in.kv_end[row + r]);
    if (s.window > 0) {
      begin = std::max(begin, s.chunked ? position / s.window * s.window : position - s.window + 1);
    }
    begin = call.keys_below(b, begin);
    end = call.keys_below(b, end);
    if (begin >= end) begin = end = r > 0 ? hi[r - 1] : 0;
    lo[r] = begin;
    hi[r] = end;
    STRATA_CHECK(
        r == 0 || (lo[r] >= lo[r - 1] && hi[r] >= hi[r - 1]),
        "[attention] sequence {}, row {}: keys begin or end before those of the previous row: expected "
        "documents in order",
        b, first + r);
  }
  for (int64_t r = rows; r < align_up(rows, kRows); ++r) lo[r] = hi[r] = hi[rows - 1];
}

// Union of the keys of a block, [begin, end), that the kTile rows of a register tile see, for each tile of a
// block of kRows rows; relative to the block's first key. Keys are computed in panels of kPanel.
template <int64_t kTile, int64_t kPanel>
struct TileRanges {
  static_assert(kRows % kTile == 0 && kKeys % kPanel == 0);
  static constexpr int64_t kTiles = kRows / kTile;
  int64_t begin[kTiles];
  int64_t end[kTiles];
  bool any = false;
  TileRanges(const int64_t* lo, const int64_t* hi, int64_t first_key, int64_t keys) {
    for (int64_t t = 0; t < kTiles; ++t) {
      begin[t] = std::clamp<int64_t>(lo[t * kTile] - first_key, 0, keys);
      end[t] = std::clamp<int64_t>(hi[(t + 1) * kTile - 1] - first_key, 0, keys);
      if (end[t] <= begin[t]) begin[t] = end[t] = 0;
      any |= end[t] > begin[t];
    }
  }
  // The range of a tile, rounded outwards to whole panels.
  int64_t panel_begin(int64_t t) const { return begin[t] / kPanel * kPanel; }
  int64_t panel_end(int64_t t) const { return align_up(end[t], kPanel); }
  bool sees(int64_t t, int64_t panel) const { return begin[t] < panel + kPanel && end[t] > panel; }
};

// Rows [begin, end) of a block that see a key of a register tile of kTile keys, for each tile of `keys` keys.
template <int64_t kTile>
struct RowRanges {
  static_assert(kKeys % kTile == 0);
  int64_t begin[kKeys / kTile];
  int64_t end[kKeys / kTile];
  int64_t tiles;
  RowRanges(const int64_t* lo, const int64_t* hi, int64_t rows, int64_t first_key, int64_t keys)
      : tiles(ceil_div(keys, kTile)) {
    // Both ends increase with the key, because lo and hi increase with the row.
    int64_t first = 0, last = 0;
    for (int64_t t = 0; t < tiles; ++t) {
      const int64_t key = first_key + t * kTile;
      while (first < rows && hi[first] <= key) ++first;
      while (last < rows && lo[last] < key + kTile) ++last;
      begin[t] = first;
      end[t] = std::max(first, last);
    }
  }
};

// Factor for a row's sums, and its lse, from its maximum score in units of log 2 and its sum of exponentials
// relative to the maximum. If the row sees no key: 0 and -inf.
struct FinishedRow {
  float factor, lse;
};
inline FinishedRow finished_row(float most, float sum, const float* sinks, int64_t head) {
  constexpr float kLn2 = 0.693147180559945309f, kLog2e = 1.44269504088896341f;
  if (sinks == nullptr) {
    if (sum == 0.0f) return {0.0f, -std::numeric_limits<float>::infinity()};
    return {1.0f / sum, most * kLn2 + std::log(sum)};
  }
  const float sink = sinks[head] * kLog2e, shift = std::max(most, sink);
  const float shrink = std::exp2(most - shift), all = sum * shrink + std::exp2(sink - shift);
  return {shrink / all, shift * kLn2 + std::log(all)};
}

// Allocates consecutive buffers in scratch memory, aligned to cache lines. Without memory it only adds up
// sizes.
class Carver {
 public:
  explicit Carver(void* memory) : memory_(static_cast<std::byte*>(memory)) {}
  template <typename T>
  T* take(int64_t n) {
    T* part = memory_ == nullptr ? nullptr : reinterpret_cast<T*>(memory_ + used_);
    used_ += align_up(n * static_cast<int64_t>(sizeof(T)), kBufferAlignment);
    return part;
  }
  int64_t used() const { return used_; }

 private:
  std::byte* memory_;
  int64_t used_ = 0;
};

// Scratch of one forward task: packed keys and values of a block, queries and sums of a chunk. T: type of
// packed operands, fp32 or bf16.
template <typename T>
struct ForwardScratch {
  ForwardScratch(Carver& carver, const AttentionShape& s, int64_t query_chunk)
      : q(carver.take<T>(rows(s, query_chunk) * tile_stride<T>(s.head_dim))),
        sums(carver.take<float>(rows(s, query_chunk) * tile_stride<float>(s.value_dim))),
        keys(carver.take<T>(kKeys * padded_columns<T>(s.head_dim))),
        values(carver.take<T>(kKeys * tile_stride<T>(s.value_dim))),
        scores(carver.take<float>(kRows * kScoreStride)),
        row_max(carver.take<float>(rows(s, query_chunk))),
        row_sum(carver.take<float>(rows(s, query_chunk))),
        lo(carver.take<int64_t>(align_up(query_chunk, kRows))),
        hi(carver.take<int64_t>(align_up(query_chunk, kRows))),
        greatest(s.finds_greatest ? carver.take<float>(s.heads / s.kv_heads) : nullptr) {}
  static int64_t rows(const AttentionShape& s, int64_t query_chunk) {
    return s.heads / s.kv_heads * align_up(query_chunk, kRows);
  }
  T* q;
  float* sums;
  T *keys, *values;
  float *scores, *row_max, *row_sum;
  int64_t *lo, *hi;
  float* greatest;  // of each head of the group, in units of log 2
};

// Greatest scores of the tasks of a forward call.
struct ChunkGreatest {
  ChunkGreatest(Carver& carver, const AttentionShape& s, int64_t query_chunk)
      : chunks(ceil_div(s.q_len, query_chunk)),
        values(s.finds_greatest ? carver.take<float>(s.batch * s.heads * chunks) : nullptr) {}
  int64_t chunks;
  float* values;  // [batch, heads, chunks]
};

// Memory shared by the tasks of a backward call.
struct BackwardRows {
  BackwardRows(Carver& carver, const AttentionShape& s)
      : delta(carver.take<float>(s.batch * s.heads * s.q_len)),
        row_lse(carver.take<float>(s.batch * s.heads * s.q_len)),
        bias_sums(s.bias_width > 0 ? carver.take<float>(s.batch * s.heads * s.bias_width) : nullptr) {}
  float *delta, *row_lse, *bias_sums;
};

// Scratch of one backward task. Suffix _t: layout for sums over the elements of a head, as in scores. Suffix
// _down: layout for sums over rows or keys, for which bf16 rows are packed differently.
template <typename T>
struct BackwardScratch {
  static constexpr bool kDown = sizeof(T) < sizeof(float);
  static constexpr int64_t kMostDepth = align_up(kRows, 32);  // rows of a block, padded for AMX
  BackwardScratch(Carver& carver, const AttentionShape& s)
      : q(carver.take<T>(kRows * tile_stride<T>(s.head_dim))),
        dout(carver.take<T>(kRows * tile_stride<T>(s.value_dim))),
        q_down(kDown ? carver.take<T>(kMostDepth * padded_columns<T>(s.head_dim)) : q),
        dout_down(kDown ? carver.take<T>(kMostDepth * padded_columns<T>(s.value_dim)) : dout),
        keys_t(carver.take<T>(kKeys * padded_columns<T>(s.head_dim))),
        values_t(carver.take<T>(kKeys * padded_columns<T>(s.value_dim))),
        keys(carver.take<T>(kKeys * tile_stride<T>(s.head_dim))),
        dq(carver.take<float>(kRows * tile_stride<float>(s.head_dim))),
        dk(carver.take<float>(kKeys * tile_stride<float>(s.head_dim))),
        dv(carver.take<float>(kKeys * tile_stride<float>(s.value_dim))),
        p(carver.take<float>(kRows * kScoreStride)),
        ds(carver.take<float>(kRows * kScoreStride)),
        dq_sums(s.dtype == DType::kF32 ? nullptr
                                       : carver.take<float>(s.heads / s.kv_heads * align_up(s.q_len, kRows) *
                                                            padded_columns<float>(s.head_dim))) {}
  T *q, *dout, *q_down, *dout_down, *keys_t, *values_t, *keys;
  float *dq, *dk, *dv, *p, *ds;
  float* dq_sums;  // [group, whole blocks of q_len, padded head_dim] if dq itself is not fp32
};

// Partial results of a decode call, one for each (sequence, key–value head, split).
struct DecodeScratch {
  DecodeScratch(Carver& carver, const AttentionShape& s, int64_t heads_at_once)
      : heads(heads_at_once),
        splits(ceil_div(s.kv_len, kSplit)),
        rows(s.heads / s.kv_heads * s.q_len),
        sums(carver.take<float>(s.batch * s.kv_heads * splits * rows * padded_columns<float>(s.value_dim))),
        row_max(carver.take<float>(s.batch * s.kv_heads * splits * rows)),
        row_sum(carver.take<float>(s.batch * s.kv_heads * splits * rows)) {}
  int64_t heads;  // key–value heads of a task
  int64_t splits, rows;
  float *sums, *row_max, *row_sum;
};

// Tasks, compiled for every instruction set and dispatched at run time. A task writes only its own part of
// the result and has exclusive use of `memory` (forward_task_bytes or backward_task_bytes).
int64_t forward_tasks(const Call& call);
void forward_task(const Call& call, int64_t task, void* memory);

// Computes delta and row_lse of the rows of one (sequence, head).
void backward_rows(const Call& call, const void* out, const float* lse, int64_t task, float* row_lse,
                   float* delta);
// Computes all gradients of one (sequence, key–value head).
void backward_head(const Call& call, int64_t task, void* memory);
// backward_head() in two parts, for more tasks: dk and dv of one block of keys; dq of one block of rows of
// all heads of a group. Results have the bits of backward_head.
void backward_keys(const Call& call, int64_t task, void* memory);
void backward_queries(const Call& call, int64_t task, void* memory);

void decode_split(const Call& call, int64_t task, const DecodeScratch& scratch);
// Sums the splits of one (sequence, key–value head).
void decode_combine(const Call& call, int64_t task, const DecodeScratch& scratch);

}  // namespace strata::cpu::attention
