// Parameters of the GPU kernels: one struct per kernel, shared by host and device. Pointers are device
// addresses; sizes and strides count elements. Rows without a stride are dense.
#pragma once

#include <cstdint>

namespace strata::gpu {

// c[m][n] (+)= a · b (+ bias[n]). Kernels are named by the layout of their operands:
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
  // The depth is split into `splits` ranges of `split_depth` (a multiple of 64). Their fp32 results are
  // stored consecutively at c; gemm_sum adds them in order. 1: c is the result.
  int32_t splits, split_depth;
};
// A matrix for TMA copies: the output of cuTensorMapEncodeTiled for a MatrixMap (launch.h).
struct alignas(64) TensorMap {
  uint64_t opaque[16];
};
// GEMM by wgmma: GemmArgs and tensor maps of the operands.
struct GemmMapsArgs {
  TensorMap a, b;
  GemmArgs gemm;
};
// c[m][n] (+)= Σ parts (+ bias[n]), parts[splits][m][n].
struct GemmSumArgs {
  const float* parts;
  void* c;
  const float* bias;
  int64_t c_stride;
  int32_t m, n, splits, accumulate;
};

// Grouped GEMMs of experts over token–expert pairs (src/ops/experts/experts.h); kernels address rows through
// lists. The lists sort pairs by expert, in order within each expert; pairs without one (an id below 0, or
// beyond the last token's) come last, as expert `experts`. Each row of `counts` covers a chunk of 1024 pairs.
struct ExpertsSortArgs {
  const int32_t* ids;            // [count]
  const int32_t* token_offsets;  // [token_count + 1]: token n has pairs [n] to [n + 1] - 1; null: per_token
  int32_t* counts;   // [chunks][experts + 1]; afterwards the start of each expert's pairs in a chunk
  int32_t* offsets;  // [experts + 2]
  int32_t* tiles;    // [tile_count][2]: expert and first list position of each tile of 128, or -1
  int32_t* slots;    // [count]
  int32_t* tokens;   // [count]: the token of each pair
  int32_t count, experts, per_token, token_count, chunks, tile_count;
  // The last `idle` of each `sequence` tokens have no expert; 0: all may have one. Only without token_offsets.
  int32_t sequence, idle;
};
// By layout, for all list positions p. nt, nn: row c_rows[p] of c = row a_rows[p] of a times its expert's b
// (nt: b[n][k], nn: b[k][n]); zeros without an expert. tn: c of each expert (+)= Σ row a_rows[p] of a · row
// b_rows[p] of b over its positions. `gemm` has the sizes of one expert; the lists replace one of m, n and k.
struct ExpertsArgs {
  GemmArgs gemm;
  const int32_t* a_rows;
  const int32_t* b_rows;  // only tn
  const int32_t* c_rows;  // only nt and nn
  const int32_t* tiles;
  const int32_t* offsets;
  int64_t expert_stride;  // between experts, of b (tn: of c)
  int32_t experts, tile_count;
};
// out[n] = Σ parts of its token–expert pairs, in order: out[tokens][columns], parts[pairs][columns]
struct ExpertsSumArgs {
  void* out;
  const float* parts;
  const int32_t* token_offsets;  // as above
  int32_t per_token, columns;
};

// Attention over `batch` sequences. q and out have `length` tokens per sequence and `heads` heads, k and v
// `kv_length` and `kv_heads`. The heads of a token are consecutive; strides separate tokens. Query head h
// reads key–value head h / (heads / kv_heads). Row i sees the keys [rows[i][0], rows[i][1]); ranges may be
// empty.
struct AttentionArgs {
  const void* q;
  const void* k;
  const void* v;
  void* out;             // forward: written
  float* lse;            // [batch, heads, length]; forward: written; -inf if a row sees no key
  const float* sinks;    // [heads] or null; only forward
  const int32_t* rows;   // [batch, length, 2]
  const int32_t* tiles;  // [batch, tiles of 64 rows, 4]: the range of keys that any row sees, and the range
                         // that all rows see
  // [batch]: sequence s reads the keys and values of entry entries[s] of a cache; null: its own. Only forward.
  // Nothing need be stored after the last key that a row sees.
  const int32_t* entries;
  int64_t q_stride, k_stride, v_stride, out_stride;
  int32_t batch, length, kv_length, heads, kv_heads, head_dim, value_dim;
  float scale;    // of q · k
  float softcap;  // if > 0, scores become softcap · tanh(score / softcap)
  // Backward. Gradients have the layout of q, k and v; dout has that of out.
  const void* dout;
  float* delta;  // [batch, heads, length]: Σ dout · out
  void* dq;
  void* dk;
  void* dv;
};

// Attention by wgmma: AttentionArgs and tensor maps of the operands, each with the rows of all sequences.
struct AttentionMapsArgs {
  TensorMap q, k, v, dout;  // dout: only backward
  AttentionArgs attention;
};
// dsinks[h] += -Σ exp(sinks[h] - lse) · delta over the rows of all sequences
struct SinkGradArgs {
  float* dsinks;
  const float* sinks;
  const float* lse;
  const float* delta;
  int32_t batch, heads, length;
};

// The keys that rows see, from positions, window and documents: writes `rows` and `tiles` of AttentionArgs.
struct AttentionRangesArgs {
  int32_t* rows;
  int32_t* tiles;
  const int32_t* kv_begin;  // [batch, length]: first key; null: 0
  const int32_t* kv_end;    // [batch, length]: last key + 1; null: kv_length
  const int32_t* position;  // [batch]: the place of a sequence's first row among the keys; null: 0
  int32_t batch, length, kv_length;
  int32_t causal, window;  // window: keys that a row sees, including its own; 0: no limit. Requires causal
  int32_t chunked;         // a row's window begins with the chunk of `window` keys that it is in
  int32_t repeat = 1;      // consecutive rows with one place, as heads of one token
  const int32_t* sequence_end = nullptr;  // [batch]: last key + 1 of all rows; null: kv_length
};
// Stores row i of sequence s, [key_width] of `keys` and [value_width] of `values`, in row position[s] + i (null: i) of
// entry entries[s] of the caches [number of entries][capacity][width].
struct CacheRowsArgs {
  void* key_cache;
  void* value_cache;
  const void* keys;
  const void* values;
  const int32_t* position;
  const int32_t* entries;
  int64_t stride;  // of the rows of keys and values
  int32_t length, capacity, key_width, value_width;
};

// h = x + residual (null: h is x and not written), rstd = 1 / sqrt(mean((h - mean)²) + eps), y = (h - mean) ·
// rstd · (weight + weight_offset) + bias. RMS norm has neither mean nor bias. One block per row.
struct NormArgs {
  void* y;
  void* h;
  float* mean;  // [rows]; layer norm only
  float* rstd;  // [rows]
  const void* x;
  const void* residual;
  const float* weight;
  const float* bias;  // layer norm only; may be null
  int32_t dim;
  float eps, weight_offset;
};
// dx = gradient of h (+ dh); parts[blocks][dw | db] (db: layer norm only): the weight gradients of each
// block's rows.
struct NormGradArgs {
  void* dx;
  float* parts;
  const void* dy;
  const void* h;
  const void* dh;  // may be null
  const float* mean;
  const float* rstd;
  const float* weight;
  int32_t rows, dim;
  float weight_offset;
};

// Rows [q | k | v] of `width`: q and k are groups of q_width and k_width, v passes. Each group is normalised by itself,
// with the weights of q or k plus weight_offset. rstd[rows, q_groups + k_groups].
struct QkNormArgs {
  void* out;    // y, or dx
  float* rstd;  // forward: written
  float* parts;
  const void* x;
  const void* dy;  // only backward
  const float* q_weight;
  const float* k_weight;
  int64_t rows;
  int32_t width, q_groups, q_width, k_groups, k_width, at_once;
  float eps, weight_offset;
};

// in[rows, stride] → parts[gridDim.y][columns]
struct ColumnSumsArgs {
  const void* in;
  float* parts;
  int64_t rows, columns, stride;
};
// out[columns] (+)= Σ_p parts[p · stride + column], p < count
struct ColumnPartsArgs {
  const float* parts;
  float* out;
  int64_t count, columns, stride;
  int32_t accumulate;
};

struct ElementArgs {
  void* out;
  const void* a;
  const void* b;
  int64_t n;
  float factor;
};
struct AddRowArgs {
  void* out;
  const void* x;
  const float* row;
  int64_t rows, columns;
};
// out[columns] = row *index of x
struct TakeRowArgs {
  void* out;
  const void* x;
  const int32_t* index;
  int64_t columns;
};
struct TransposeArgs {
  void* out;
  const void* in;
  int64_t rows, columns;  // of in
};

// Plain: x[rows, width]. Gated: x[rows, 2 · width] = [gate | up]. Without dy, out is the value; with dy, the
// gradient of x.
struct ActivationArgs {
  void* out;
  const void* dy;
  const void* x;
  int64_t rows, width;
  int32_t kind;  // ActivationKind
};

// As in kernels/cpu/rope.h: pair i of a head is (i, i + rotary_dim / 2), or (2i, 2i + 1) if `adjacent`. Rows
// have `width` elements.
struct RopeArgs {
  void* out;
  const void* in;
  const float* table;  // [positions, rotary_dim / 2, 2]
  const int32_t* positions;
  int64_t row_stride;
  int32_t rows, heads, head_dim, rotary_dim, first, width, adjacent, inverse;
};

struct EmbeddingArgs {
  void* out;
  const int32_t* ids;
  const float* table;
  const float* position_table;  // may be null
  const int32_t* positions;
  int32_t dim;
  float scale;
  // Parts of the vocabulary, each the next `part_rows` rows of the table: part p has the ids from starts[p] on. Ids of no
  // part give zeros. null: the table has all ids.
  const int32_t* starts = nullptr;
  int32_t parts = 0, part_rows = 0;
};
// sorted[blocks · run]: row << 32 | position in the run. One block per run, whose length is a power of two.
struct EmbeddingSortArgs {
  uint64_t* sorted;
  const int32_t* ids;
  int64_t rows;
  int32_t run, padding;             // padding: an id without gradient, or -1
  const int32_t* starts = nullptr;  // as EmbeddingArgs has them
  int32_t parts = 0, part_rows = 0;
};
// table[id] += scale · Σ dy of run `number`
struct EmbeddingGradArgs {
  float* table;
  const void* dy;
  const uint64_t* sorted;
  int32_t number, run, dim;
  float scale;
};

// loss = lse - logit[target] + z_loss · lse² over the first `valid` of `vocab` logits; 0 for targets below 0.
// The gradient (of grad_scale · *scale · loss) may replace the logits; null: no gradient.
struct CrossEntropyArgs {
  const void* logits;
  void* gradient;
  const int32_t* targets;
  float* losses;
  float* lse;          // may be null
  int32_t* greedy;     // 1 where no logit exceeds the target's, else 0; may be null
  const float* scale;  // may be null
  int64_t stride;      // of logits and gradient
  int32_t vocab, valid;
  float grad_scale, z_loss, softcap;
};
struct LossSumArgs {
  double* sum;
  int64_t* count;
  const float* losses;
  const int32_t* targets;
  int32_t tokens, accumulate;
};

// Memory layout of tensor/update_scalars.h.
struct GpuUpdateScalars {
  float lr, grad_scale;
  int32_t skip;
  int64_t update;
};
// Updates by elements (src/optim/…): AdamW and ADOPT have both moments, Lion has m.
struct ElementUpdateArgs {
  float* master;
  float* m;
  float* v;
  const float* grad;
  void* copy;  // bf16; may be null; only AdamW
  const GpuUpdateScalars* scalars;
  int64_t n;
  double beta1, beta2;
  float eps, weight_decay, lr_scale;
};
// AdamW with moments of a byte: a block of threads per 256 elements (src/optim/adamw8bit).
struct AdamW8BitArgs {
  float* master;
  uint8_t* m;
  float* m_scale;  // one per 256 elements
  uint8_t* v;
  float* v_scale;
  const float* grad;
  const GpuUpdateScalars* scalars;
  int64_t n;
  double beta1, beta2;
  float eps, weight_decay, lr_scale;
  float m_map[256], v_map[256];  // the values of the codes, ascending
};
// Muon's work by elements. momentum: m and x from grad; x is 0 if the step is skipped. scale: x /= √*squares + 1e-7.
// polynomial: x[side, side] = b · x + c · other, and `a` added on the diagonal. apply: p = keep · p - rate · x.
struct MuonArgs {
  float* master;
  float* m;
  float* x;
  const float* other;
  const float* grad;
  const double* squares;
  const GpuUpdateScalars* scalars;
  int64_t n, side;
  double momentum;
  int32_t nesterov;
  float a, b, c, weight_decay, lr_scale;
};
// Adafactor (src/optim/adafactor) of a matrix, or of a vector: one row, whose second moments are `column`, and no `row`.
// Sums are fp64.
struct AdafactorArgs {
  float* master;
  float* row;     // [rows] or null
  float* column;  // [columns]
  const float* grad;
  const GpuUpdateScalars* scalars;
  float* parts;      // [part_count][columns]: sums of squared gradients
  double* of_rows;   // [1]: Σ row
  double* weights;   // [1]: Σ p²
  double* partials;  // [rows]: Σ u² of each row, or of each of a vector's blocks
  double* updates;   // [1]: Σ u²
  int64_t rows, columns, part_count;
  double beta2_decay, eps1, eps2, clip_threshold;
  float weight_decay, lr_scale;
};
// squares[r] = Σ x² over row r
struct RowSquaresArgs {
  double* squares;
  const float* x;
  int64_t columns;
};
// out[r] = x[r] · min(1, limit · max(√weights[r], least) / (√squares[r] · grad_scale))
struct ClipRowsArgs {
  float* out;
  const float* x;
  const double* squares;
  const double* weights;
  const GpuUpdateScalars* scalars;
  int64_t columns;
  double limit, least;
};
struct SquaresArgs {
  double* partials;
  const float* x;
  int64_t n;
};
struct ReduceArgs {
  double* out;
  const double* partials;
  int64_t n;
};

// Statistics are measured in parts: one for each kStatisticsBlock elements, at least 1.
constexpr int64_t kStatisticsBlock = 16384, kMostStatisticsParts = 1024;
// Statistics of columns [begin, end) of x[rows][columns], nine doubles as in tensor/statistics_table.h. Nothing
// is written if bit `group` of *mask is 0, or if `first` and `accumulate`. NaN and infinities count only as
// such; subnormal numbers count as flushed and with their value. `row` divides end - begin; 0: none.
struct StatisticsArgs {
  double* table;
  const void* x;
  const int64_t* mask;
  double* parts;  // StatisticsPlan::parts_bytes
  int64_t rows, columns, begin, end;
  int64_t row;  // row_squares is the greatest sum of squares of `row` consecutive columns
  int32_t group, first, accumulate;
  float largest;  // magnitudes from here on count as saturated; 0: none
};
// m ≤ 4096 evenly spaced elements of x[n]: sample[i] = x[i · n / m], or statistics of their difference from
// the sample. Nothing is written if bit `group` of *mask is 0.
struct SampleArgs {
  float* sample;
  const float* x;
  double* table;  // only sample_change
  const int64_t* mask;
  int64_t n, m;
  int32_t group, accumulate;
};
// For each kNormBlock elements: partials = Σ x², with the bits of sum_of_squares; digests = Σ bits of
// element i · (2i + 1), modulo 2^64, with i counted from the start of the block.
struct DigestArgs {
  double* partials;
  int64_t* digests;
  const float* x;
  int64_t n;
};
constexpr int32_t kMostLists = 48;
// digest (+)= Σ digest i · factor_of_digest(first + i) over consecutive lists, modulo 2^64.
struct JoinDigestsArgs {
  int64_t* digest;
  const int64_t* digests[kMostLists];
  int32_t counts[kMostLists];
  int64_t first;  // number of digests in the lists of earlier launches
  int32_t lists, accumulate;
};
// sum (+)= Σ of all lists.
struct PartialsArgs {
  double* sum;
  const double* partials[kMostLists];
  int32_t counts[kMostLists];
  int32_t lists, accumulate;
};
// norm = √sum
struct RootArgs {
  float* norm;
  const double* sum;
};
// What optim::StepScalars (optim/scalars/scalars.h) computes from the sum of all squares. updates_out may be
// updates, and history_out may be history.
struct StepScalarsArgs {
  const void* hyper;  // optim::UpdateHyper
  const int64_t* token_count;
  const double* loss_sum;
  const int64_t* updates;
  const void* history;    // optim::GuardHistory
  const double* squares;  // [1]
  void* scalars;          // GpuUpdateScalars
  void* embedding_scalars;
  float* norm;
  int64_t* updates_out;
  void* history_out;
  void* decision;     // optim::GuardDecision
  double* workspace;  // kStepScalarsWorkspace bytes
};
// table[positions][pairs][2] = magnitude · (cos, sin)(position · frequencies[pair])
struct RopeTableArgs {
  float* table;
  const double* frequencies;  // radians per position
  int64_t positions, pairs;
  double magnitude;
};

}  // namespace strata::gpu
