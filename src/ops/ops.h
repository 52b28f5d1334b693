// The ops of the project: builders that append a node to a graph, and the definitions that bindings refer to.
// N is the number of tokens of a micro-batch (sequences × sequence length, row-major). Shapes are checked by
// each op's rule.
#pragma once

#include "graph/graph.h"
#include "graph/op.h"

namespace strata::ops {

using graph::Graph;
using graph::OpDef;
using graph::ValueId;

// --- embedding.cpp
// x[N, D] = table[tokens] (+ position_table[positions]); tables fp32, x of `dtype`. Both position inputs or
// none.
ValueId embedding(Graph& graph, ValueId tokens, ValueId table, DType dtype, ValueId positions = graph::kNone,
                  ValueId position_table = graph::kNone);
extern const OpDef kEmbedding;
extern const OpDef kEmbeddingGrad;  // (dy[N, D], ids[N]) → accumulates into grad[V, D]

// --- linear.cpp
// y[N, O] = x[N, K] · w[O, K]ᵀ (+ bias[O]); w and bias fp32. y has x's dtype unless `f32_output`.
ValueId linear(Graph& graph, ValueId x, ValueId weight, ValueId bias = graph::kNone, bool f32_output = false);
extern const OpDef kLinear;            // (x, w, bias?) → y
extern const OpDef kLinearGradInput;   // (dy, w) → dx
extern const OpDef kLinearGradWeight;  // (dy, x) → accumulates into grad[O, K]
extern const OpDef kColumnSums;        // (dy[N, O]) → accumulates into grad[O]
// (w) → w in the encoding of its output; made by lowering.
extern const OpDef kPackWeight;

// --- norm.cpp
struct Normed {
  ValueId y;  // the normalised value
  ValueId h;  // what was normalised: x + residual, or x itself
};
// h = x (+ residual); y = h · rsqrt(mean(h²) + eps) · weight, over the last dimension.
Normed rms_norm(Graph& graph, ValueId x, ValueId residual, ValueId weight, double eps);
// h = x (+ residual); y = (h − mean) · rsqrt(var + eps) · weight + bias.
Normed layer_norm(Graph& graph, ValueId x, ValueId residual, ValueId weight, ValueId bias, double eps);
extern const OpDef kRmsNorm;              // (x, w, residual?) → y, rstd, h?
extern const OpDef kRmsNormGradInput;     // (dy, h, rstd, w, dh?) → dx
extern const OpDef kRmsNormGradWeight;    // (dy, h, rstd) → accumulates into grad[D]
extern const OpDef kLayerNorm;            // (x, w, b, residual?) → y, mean, rstd, h?
extern const OpDef kLayerNormGradInput;   // (dy, h, mean, rstd, w, dh?) → dx
extern const OpDef kLayerNormGradWeight;  // (dy, h, mean, rstd) → accumulates into grad w[D], grad b[D]

// --- attention.cpp
// Angles of rotary embedding: position · theta^(−2i / rotary_dim), scaled for long contexts.
struct RopeScaling {
  enum class Kind : int64_t { kUnscaled, kInterpolated, kLlama3 };
  double theta = 10000;
  Kind kind = Kind::kUnscaled;
  double factor = 1;
  double low_frequency_factor = 1;
  double high_frequency_factor = 4;
  double original_positions = 8192;
};
// The constant table [positions, rotary_dim / 2, 2], made once before the first step.
ValueId rope_table(Graph& graph, int64_t positions, int64_t rotary_dim, const RopeScaling& rope);
extern const OpDef kRopeTable;
// Rotates the q and k parts of qkv[N, (h + 2 kv) · hd] by the angles of their positions; half-rotation
// layout. table[positions, rotary_dim / 2, 2] holds cosines and sines.
ValueId rope(Graph& graph, ValueId qkv, ValueId table, ValueId positions, int64_t head_dim);
extern const OpDef kRope;  // (qkv, table, positions) → qkv; attribute inverse = 1 turns back
// Causal attention over sequences of `sequence_length` tokens; row i sees keys from kv_begin[i] (document
// mask; absent: from 0) to i. qkv has segments [q | k | v]. Gives [N, h · hd].
ValueId attention(Graph& graph, ValueId qkv, ValueId kv_begin, int64_t head_dim, int64_t sequence_length,
                  double scale);
extern const OpDef kAttention;      // (qkv, kv_begin?) → out, lse[sequences, h, T]
extern const OpDef kAttentionGrad;  // (dout, out, lse, qkv, kv_begin?) → dqkv
// The same against a cache: sequence s stores its new keys and values in slot[s] of the cache, from
// position[s] on, and attends to all there up to the row. Both are i32[sequences], role step; no two
// sequences may name the same slot. Caches are [slots, room, kv · hd] in qkv's dtype.
struct CacheValues {
  ValueId keys, values, position, slot;
};
ValueId cached_attention(Graph& graph, ValueId qkv, const CacheValues& cache, int64_t head_dim,
                         int64_t sequence_length, double scale);
extern const OpDef kCachedAttention;  // (qkv, kc, vc, position, slot) → out, kc, vc

// --- activation.cpp
ValueId swiglu(Graph& graph, ValueId gate_up);  // [N, 2F] as [gate | up] → silu(gate) · up, [N, F]
ValueId gelu_tanh(Graph& graph, ValueId x);     // 0.5 x (1 + tanh(√(2/π) (x + 0.044715 x³)))
extern const OpDef kSwiglu;
extern const OpDef kSwigluGrad;  // (dy, gate_up) → d_gate_up
extern const OpDef kGeluTanh;
extern const OpDef kGeluTanhGrad;  // (dy, x) → dx

// --- loss.cpp
// Sum over the valid targets (≥ 0) of −log softmax(x · wᵀ)[target], and their count; both accumulate over
// micro-batches. `per_token`: also the loss of each token, f32[N], and whether its target is the most
// probable token, i32[N].
struct Loss {
  ValueId sum;        // "loss_sum", f64[1]
  ValueId count;      // "token_count", i64[1]
  ValueId per_token;  // "token_loss"
  ValueId greedy;     // "token_greedy"
};
Loss linear_cross_entropy(Graph& graph, ValueId x, ValueId weight, ValueId targets, bool per_token = false);
extern const OpDef kLinearCrossEntropy;       // (x, w, targets) → sum, count, per_token?, greedy?
extern const OpDef kLinearCrossEntropyTrain;  // (x, w for logits, w for dx, targets) → sum, count, dx, grad w

// --- select.cpp
// row[1, D] = x[index]; index is i32[1] in the step block.
ValueId take_row(Graph& graph, ValueId x, ValueId index);
extern const OpDef kTakeRow;

}  // namespace strata::ops
