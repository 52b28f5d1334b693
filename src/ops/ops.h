// The ops of the project: builders that append a node to a graph, and the definitions that bindings refer to.
// N is the number of tokens of a micro-batch (sequences × sequence length, row-major). Shapes are checked by
// each op's rule.
//
// Operands have fixed positions, which operands.h names; one that may be missing is marked ?.
#pragma once

#include "graph/graph.h"
#include "graph/op.h"
#include "ops/operands.h"

namespace strata::ops {

using graph::Axis;
using graph::Graph;
using graph::OpDef;
using graph::ValueId;

// --- embedding.cpp
struct EmbeddingOptions {
  double scale = 1;
  int64_t padding_id = -1;  // a row of the table that the look-up gives no gradient; -1: none
  ValueId positions = graph::kNone, position_table = graph::kNone;  // both or none
  // Where the table's rows may be sharded (vocab_start below): tokens in no part of a shard give zeros, so
  // that x is a sum over the shards. Without positions.
  ValueId vocab_start = graph::kNone;
};
// x[N, D] = scale · table[tokens] (+ position_table[positions]); tables fp32, x of `dtype`.
ValueId embedding(Graph& graph, ValueId tokens, ValueId table, DType dtype,
                  const EmbeddingOptions& options = {});
extern const OpDef kEmbedding;
// (dy[N, D], ids[N], vocab_start?) → accumulates scale · dy into grad[V, D]
extern const OpDef kEmbeddingGrad;

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
// h = x (+ residual); y = h · rsqrt(mean(h²) + eps) · (weight + weight_offset), over the last dimension.
Normed rms_norm(Graph& graph, ValueId x, ValueId residual, ValueId weight, double eps,
                double weight_offset = 0);
// h = x (+ residual); y = (h − mean) · rsqrt(var + eps) · weight + bias.
Normed layer_norm(Graph& graph, ValueId x, ValueId residual, ValueId weight, ValueId bias, double eps);
extern const OpDef kRmsNorm;              // (x, w, residual?) → y, rstd, h? (with the residual)
extern const OpDef kRmsNormGradInput;     // (dy, h, rstd, w, dh?) → dx
extern const OpDef kRmsNormGradWeight;    // (dy, h, rstd) → accumulates into grad[D]
extern const OpDef kLayerNorm;            // (x, w, b, residual?) → y, mean, rstd, h?
extern const OpDef kLayerNormGradInput;   // (dy, h, mean, rstd, w, dh?) → dx
extern const OpDef kLayerNormGradWeight;  // (dy, h, mean, rstd) → accumulates into grad w[D], grad b[D]

// --- qk_norm.cpp
// RMS norm of the q and k parts of qkv[N, q | k | v]: of each head where the weights are as wide as a head,
// of the whole part where they are as wide as that. v passes. Where ranks share the heads of a whole part
// (placements of the weights) its mean square goes over them.
ValueId qk_norm(Graph& graph, ValueId qkv, ValueId q_weight, ValueId k_weight, double eps,
                double weight_offset = 0);
extern const OpDef kQkNorm;            // (qkv, wq, wk, means?) → y, rstd[N, groups]
extern const OpDef kQkNormGradInput;   // (dy, qkv, rstd, wq, wk, means?) → dx
extern const OpDef kQkNormGradWeight;  // (dy, qkv, rstd) → accumulates into grad wq, grad wk
// (qkv, dy?, wq?, wk?) → means f32[N, 2] over all of q, and of k: of squares; with dy and the weights w,
// which come together, of qkv · dy · w. No gradient passes: qk_norm's covers what passes through means.
extern const OpDef kQkMeans;

// --- share_heads.cpp
// qkv[N, q | k | v] of a rank from its queries and from keys and values kv[N, k | v] that all ranks have: of
// each key and value head there are as many copies as ranks of the axis read it, which follow one another.
struct HeadSharing {
  int64_t head_dim = 0;
  int64_t copies = 1;
};
ValueId share_heads(Graph& graph, ValueId q, ValueId kv, Axis axis, const HeadSharing& sharing);
extern const OpDef kShareHeads;      // (q, kv, rank i32[axes]) → qkv
extern const OpDef kShareHeadsGrad;  // (dqkv, rank) → dq, dkv: what the copies on this rank add up to

// --- constant.cpp
// A vector of equal numbers, made once before the first step: the weight of a norm that has none.
ValueId constant(Graph& graph, const std::string& name, int64_t elements, double number);
extern const OpDef kConstant;  // () → values

// --- rope.cpp
// Angles of rotary embedding: position · theta^(−2i / rotary_dim), scaled for long contexts as config.json
// says.
struct RopeScaling {
  enum class Kind : uint8_t { kUnscaled, kInterpolated, kLlama3, kDynamic, kYarn, kLongRope };
  double theta = 10000;
  Kind kind = Kind::kUnscaled;
  double factor = 1;
  double low_frequency_factor = 1;       // llama3
  double high_frequency_factor = 4;      // llama3
  double original_positions = 8192;      // all but interpolated
  double beta_fast = 32, beta_slow = 1;  // YaRN
  bool whole_pairs = true;               // YaRN: the ramp begins and ends at whole pairs
  double attention_factor = 1;           // YaRN, LongRoPE: cosines and sines are multiplied by it
  // As config.json says them; 0: it does not. YaRN's attention_factor comes from both, and scores of latent
  // attention grow by the second.
  double mscale = 0, mscale_all_dim = 0;
  // LongRoPE: up to original_positions, and beyond.
  std::vector<double> short_factors = {}, long_factors = {};
};
struct Rotation {
  std::vector<double> frequencies;  // radians a position, one a pair
  double magnitude = 1;
};
// For a program that knows `positions` positions.
Rotation rotation_of(const RopeScaling& rope, int64_t rotary_dim, int64_t positions);
// The constant table [positions, rotary_dim / 2, 2], made once before the first step.
ValueId rope_table(Graph& graph, int64_t positions, int64_t rotary_dim, const RopeScaling& rope,
                   const std::string& name = "rope_table");
extern const OpDef kRopeTable;
// Rotates the q and k parts of qkv[N, (h + 2 kv) · hd] by the angles of their positions; half-rotation
// layout. table[positions, rotary_dim / 2, 2] holds cosines and sines.
ValueId rope(Graph& graph, ValueId qkv, ValueId table, ValueId positions, int64_t head_dim);
// The same of all heads of x[N, heads · head_dim], which has no parts.
ValueId rope(Graph& graph, ValueId x, ValueId table, ValueId positions, const RopeAttrs& attrs);
extern const OpDef kRope;  // (qkv, table, positions) → qkv

// --- attention.cpp
struct AttentionOptions {
  AttentionAttrs attrs;
  ValueId kv_end = graph::kNone;  // i32[N], where not causal: a row sees keys below it; absent: to the last
  // f32[heads, distances] (relative_bias): bias[head, attrs.bias_zero + j - i] is added to the scaled score
  // of row i and key j. Not with softcap.
  ValueId bias = graph::kNone;
  // f32[heads]: a score beside those of the keys, with no value behind it (gpt-oss).
  ValueId sinks = graph::kNone;
};
// Attention over sequences of attrs.sequence_length tokens; row i sees keys from kv_begin[i] (document mask;
// absent: from 0) to i, or to the end where not causal. qkv has segments [q | k | v]. Gives [N, h · value
// size].
ValueId attention(Graph& graph, ValueId qkv, ValueId kv_begin, const AttentionOptions& options);
extern const OpDef kAttention;      // (qkv, kv_begin?, kv_end?, bias?, sinks?) → out, lse[sequences, h, T]
extern const OpDef kAttentionGrad;  // (dout, out, lse, qkv, kv_begin?, kv_end?, bias?) → dqkv, dbias?
// (dout, out, lse, sinks) → accumulates into grad[heads], of every kind of attention over sequences.
extern const OpDef kSinkGrad;
// The same against a cache: sequence s stores its new keys and values in slot[s] of the cache, from
// position[s] on, and attends to all there up to the row. Both are i32[sequences], role step; no two
// sequences may name the same slot. Caches are [slots, room, kv · hd] in qkv's dtype. Always causal.
struct CacheValues {
  ValueId keys, values, position, slot;
};
ValueId cached_attention(Graph& graph, ValueId qkv, const CacheValues& cache,
                         const AttentionOptions& options);
extern const OpDef kCachedAttention;  // (qkv, kc, vc, position, slot, bias?, sinks?) → out, kc, vc

// --- cross_attention.cpp
// Queries of one sequence and keys and values of another, never causal: q is [N, h · hd], kv [M, k | v] with
// as many sequences. Row i sees the keys from kv_begin[i] to below options.kv_end[i] of its encoder's
// sequence (absent: all); a row whose range is empty gives 0. No window, no bias. Gives [N, h · hd].
ValueId cross_attention(Graph& graph, ValueId q, ValueId kv, ValueId kv_begin,
                        const AttentionOptions& options);
extern const OpDef kCrossAttention;      // (q, kv, kv_begin?, kv_end?) → out, lse[sequences, h, T]
extern const OpDef kCrossAttentionGrad;  // (dout, out, lse, q, kv, kv_begin?, kv_end?) → dq, dkv
// The same against kept keys and values: sequence s reads those below encoder_end[s] of slot[s]. Both are
// i32[sequences], role step; caches are [slots, room, kv · hd] in q's dtype.
struct CrossCache {
  ValueId keys, values, slot;
};
ValueId cached_cross_attention(Graph& graph, ValueId q, const CrossCache& cache, ValueId encoder_end,
                               const AttentionOptions& options);
extern const OpDef kCachedCrossAttention;  // (q, kc, vc, slot, encoder_end) → out
// Keeps the keys and values of whole sequences, kv [M, k | v], in the first rows of their slots.
void store_cross(Graph& graph, ValueId kv, const CrossCache& cache);
extern const OpDef kStoreCross;  // (kv, kc, vc, slot) → kc, vc
// i32[N]: for each row the end of the range of keys j of its sequence with k_begin[j] == q_begin[i]; 0 where
// there is none. k_begin [M] does not fall within a sequence. With it as kv_end a row sees its own document.
// Where ranks share the rows on the context axis k_begin may be whole there.
ValueId document_ends(Graph& graph, ValueId q_begin, ValueId k_begin, int64_t sequences);
extern const OpDef kDocumentEnds;

// --- relative_bias.cpp
// bias[h, d - first] = table[bucket(d), h] for distances d = key − query in [first, last]; table [buckets,
// heads] is fp32. Buckets of Raffel et al. (2020): near distances have one each, farther ones share, on a
// logarithmic scale up to max_distance. One direction: keys behind the query all have bucket 0.
ValueId relative_bias(Graph& graph, ValueId table, const RelativeBiasAttrs& attrs);
extern const OpDef kRelativeBias;
extern const OpDef kRelativeBiasGrad;  // (dbias) → accumulates into grad[buckets, heads]

// --- activation.cpp
ValueId gated(Graph& graph, ValueId gate_up, ActivationKind kind);  // [N, gate | up] → f(gate) · up, [N, F]
ValueId activation(Graph& graph, ValueId x, ActivationKind kind);
extern const OpDef kGated;
extern const OpDef kGatedGrad;  // (dy, gate_up) → d_gate_up
extern const OpDef kActivation;
extern const OpDef kActivationGrad;  // (dy, x) → dx

// --- elementwise.cpp
ValueId scale(Graph& graph, ValueId x, double factor);  // factor · x
extern const OpDef kScale;
// y[N, D] = x + table[row], one row for all; table [R, D], or [D] for one row, is fp32.
ValueId add_row(Graph& graph, ValueId x, ValueId table, int64_t row);
extern const OpDef kAddRow;
extern const OpDef kAddRowGrad;  // (dy) → accumulates into grad[R, D]

// --- loss.cpp
// Sum over the valid targets (≥ 0) of −log softmax(x · wᵀ + bias)[target], and their count; both accumulate
// over micro-batches.
struct LossOptions {
  bool per_token = false;       // also Loss::per_token and Loss::greedy
  double softcap = 0;           // above 0: a logit l becomes softcap · tanh(l / softcap)
  ValueId bias = graph::kNone;  // fp32 [V]; not with softcap
  std::string prefix = {};      // of the names of the loss's values, where there are several losses
  // Of the split form alone, where the weight's rows may be sharded (vocab_start below).
  ValueId vocab_start = graph::kNone;
  // Of the split form: one node gives all gradients, from the logits made once more. Four products.
  bool one_gradient = false;
  double target_share = 1;  // of the tokens that have a target, on average: the others cost nothing
};
struct Loss {
  ValueId sum;        // "loss_sum", f64[1]
  ValueId count;      // "token_count", i64[1]
  ValueId per_token;  // "token_loss", f32[N]: the loss of each token
  ValueId greedy;     // "token_greedy", i32[N]: whether its target is the most probable token
};
Loss linear_cross_entropy(Graph& graph, ValueId x, ValueId weight, ValueId targets,
                          const LossOptions& options = {});
extern const OpDef kLinearCrossEntropy;  // (x, w, targets, bias?) → sum, count, per_token?, greedy?
// (x, w for logits, w for dx, targets, bias?, seed?) → sum, count, dx, grad w, grad bias?. Gradients are
// those of seed · sum; sum and count are not scaled.
extern const OpDef kLinearCrossEntropyTrain;
// The same loss, the same bits, for where its one instruction does not do: forward apart from backward, input
// gradients apart from weight gradients, or a sharded vocabulary. The logits are made three times: five
// products of the head's size for the fused form's three.
Loss split_cross_entropy(Graph& graph, ValueId x, ValueId weight, ValueId targets,
                         const LossOptions& options = {});
// Its two halves, between which statistics may be moved.
ValueId cross_entropy_statistics(Graph& graph, ValueId x, ValueId weight, ValueId targets,
                                 const LossOptions& options = {});
Loss loss_of_statistics(Graph& graph, ValueId statistics, ValueId targets, const LossOptions& options = {});
// (x, w, targets, bias?, vocab_start?) → statistics f32[parts, N, 3]: of each part's logits the maximum, the
// sum of exp(logit − maximum), and the target's logit, −∞ where the target is in another part. All are 0 for
// a token without target. Rows behind the end of the vocabulary take no part.
extern const OpDef kCrossEntropyStatistics;
extern const OpDef kCrossEntropyLoss;      // (statistics, targets) → sum, count, per_token?, greedy?
extern const OpDef kCrossEntropyLossGrad;  // (statistics, targets, seed?) → dstatistics
// (x, w for logits, w for dx, targets, statistics, dstatistics, bias?, vocab_start?) → dx
extern const OpDef kCrossEntropyGradInput;
// (x, w for logits, targets, statistics, dstatistics, bias?, vocab_start?) → accumulates into grad w, grad
// bias?
extern const OpDef kCrossEntropyGradWeight;
// Both: (x, w for logits, w for dx, targets, statistics, dstatistics, bias?, vocab_start?) → dx, grad w, grad
// bias?
extern const OpDef kCrossEntropyGrad;

// --- vocabulary.cpp
// Of a table whose rows are sharded along an axis, i32[parts], one a rank of the axis: the row of the
// whole vocabulary at which each part begins. It is sharded as the table is, so a rank has its own, whose
// parts are of equal size. kNone where the axis does not shard the table.
ValueId vocab_start(Graph& graph, ValueId table, Axis axis);
extern const OpDef kVocabStart;  // (rank i32[axes]) → starts

// --- softcap.cpp
// y = cap · tanh(x / cap), for the logits of a generating program; f32, over itself, no gradient.
extern const OpDef kSoftcap;  // (x) → y

// --- select.cpp
// row[1, D] = x[index]; index is i32[1] in the step block.
ValueId take_row(Graph& graph, ValueId x, ValueId index);
extern const OpDef kTakeRow;

}  // namespace strata::ops
