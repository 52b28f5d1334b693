// Parameters of the kernels of experts' routers and rows, as args.h has them for the others.
#pragma once

#include <cstdint>

namespace strata::gpu {

// --- Routers (src/ops/router). Logits, scores and weights are fp32. A warp per token.

struct RouteArgs {
  const float* logits;    // [tokens][experts]
  const float* bias;      // [experts] or null
  const int32_t* hashed;  // [tokens]: they choose by their hash; null: the logits choose
  int32_t* ids;           // [tokens][k]; backward: only read
  float* weights;         // [tokens][k]
  float* of_groups;       // [tokens][2][groups]: scores of groups, and which are kept; null for one group
  const float* dweights;  // [tokens][k]; only backward
  float* dlogits;         // [tokens][experts]; only backward
  int32_t tokens, experts, k, sigmoid, normalize, balanced;
  int32_t groups, kept_groups, group_score;  // as in ops::RouteAttrs
  uint32_t stream;
  float normalize_eps, scale;
};
// scores[tokens][experts], or with `rows` [tokens / rows][experts][rows]; NaN for a token with a logit that is not
// finite. With dscores [tokens][experts]: dlogits of the same shape.
struct ScoresArgs {
  float* scores;
  float* dlogits;
  const float* dscores;
  const float* logits;
  int32_t tokens, experts, sigmoid, rows;
};
// y[n][e] = log softmax(groups[n])[g] + log softmax(logits[n] of group g)[e]; backward: dgroups and dlogits from dy.
struct TwoLevelArgs {
  float* y;
  float* dgroups;
  float* dlogits;
  const float* dy;
  const float* groups;
  const float* logits;
  int32_t tokens, group_count, experts;
};

// Sums over groups of `rows` tokens, by parts of kRouterPart tokens.
constexpr int32_t kRouterPart = 64;
struct RouterSumsArgs {
  float* parts;          // [groups][parts of a group][2][experts]
  float* probabilities;  // [groups][experts]
  float* counts;         // [groups][experts]
  const float* logits;   // [groups · rows][experts]
  const int32_t* ids;    // [groups · rows][k]
  const float* dprobabilities;
  float* dlogits;
  int32_t groups, rows, experts, k, sigmoid, part_count;
  int32_t sequence, idle;  // the last `idle` tokens of each `sequence` tokens do not count
};
// Of each group factor · Σ counts · probabilities is added to the sum, or dprobabilities = factor · counts; factor =
// coefficient · (targets that are not negative) · experts / (k · tokens · (Σ counts / k)).
struct BalanceArgs {
  double* sum;
  float* dprobabilities;  // [groups][experts]
  const float* probabilities;
  const float* counts;  // [groups][experts], or with `same` [experts]
  const int32_t* targets;
  double coefficient;
  int32_t groups, rows, tokens, experts, k, same, accumulate;
};
// Σ share · coefficient · (log Σ exp logits)², whose parts of kRouterPart tokens are added in order; share is 1 for a
// token with a target, else 0. With `rows`, sequences of `rows` tokens have `targets_of_sequence` targets each, and every
// token the share (targets that are not negative) / rows.
struct RouterZArgs {
  double* parts;  // [part_count]
  double* sum;
  float* dlogits;
  const float* logits;
  const int32_t* targets;
  double coefficient;
  int32_t tokens, experts, rows, targets_of_sequence, part_count, accumulate;
};
// bias += rate · sign(mean of the loads - load), unless the step is skipped
struct RouterBiasArgs {
  float* bias;
  const int64_t* loads;
  const void* scalars;  // GpuUpdateScalars
  double rate;
  int32_t experts;
};

// --- What routers read. A thread per four elements, or per row.

// y = x · (1 - eps + 2 eps u); element c of a row draws number c mod 4 of counter (places[row][0], places[row][1] ·
// ⌈columns / 4⌉ + ⌊c / 4⌋).
struct JitterArgs {
  float* y;
  const float* x;
  const int32_t* places;  // [rows][2]
  int64_t rows, columns;
  float eps;
  uint32_t stream;
};
// places[row] = (samples[row / of_sample], row mod of_sample)
struct SamplePlacesArgs {
  int32_t* places;
  const int32_t* samples;
  int64_t rows;
  int32_t of_sample;
};

// --- Experts that choose (src/ops/expert_choice): groups of `rows` tokens, of which each expert takes `capacity`.

struct ExpertChoiceArgs {
  int32_t* tokens;       // [groups][experts][capacity]; backward: only read
  int32_t* experts_out;  // as tokens
  float* weights;        // as tokens
  const float* scores;   // [groups][experts][rows]
  const float* dweights;
  float* dscores;  // [groups · rows][experts], zeros
  int32_t groups, rows, experts, capacity;
  float scale;
};
// Gather: y[m] = row tokens[m] of its group in x. Scatter: y[n] = Σ x[m] over the rows that are of token n, in order.
struct GroupRowsArgs {
  void* y;
  const void* x;
  const int32_t* tokens;  // one for each place of all groups
  int64_t rows, slots;    // of a group
  int64_t columns;
};

// --- Soft mixtures (src/ops/soft_experts): groups of `rows` tokens, and mixed inputs.

struct SoftArgs {
  float* weights;       // [tokens][mixed inputs]: softmaxes over a group's tokens, or over its mixed inputs
  const float* logits;  // as weights
  float* dlogits;       // as weights; dot products of rows before soft_through_*, the gradient after it
  void* out;            // mix: a row for each mixed input or token
  const void* a;        // mix: its rows; dot products: rows of tokens
  const void* b;        // dot products: rows of mixed inputs
  int32_t* experts;     // of each mixed input
  float* ones;          // as experts
  int32_t groups, rows, slots, of_expert;
  int64_t columns;
};

// --- Rows of token–expert pairs

// y = x · weights, one for each row; backward also dweights = Σ dy · x.
struct ScaleRowsArgs {
  void* out;
  float* dweights;
  const void* dy;  // null: forward
  const void* x;
  const float* weights;
  int64_t rows, columns;
};
// Biases b[experts][columns] (src/ops/expert_bias), with the pairs of ExpertsSortArgs. With weights rows are of tokens.
struct ExpertBiasArgs {
  void* y;
  float* dbias;
  float* dweights;  // [count]
  const void* x;    // backward: dy
  const int32_t* ids;
  const float* weights;  // [count] or null
  const float* bias;
  const int32_t* token_offsets;  // [token_count + 1] or null
  const int32_t* slots;          // the lists by expert: only for dbias
  const int32_t* tokens;
  const int32_t* offsets;
  int64_t rows, columns;
  int32_t count, experts, per_token, token_count, accumulate;
};
// The ids of pairs that an expert has capacity for, else -1 (src/ops/capacity). Groups have `of_group` pairs.
struct LimitExpertsArgs {
  int32_t* kept;
  const int32_t* ids;
  const float* weights;
  const int32_t* begins;   // [tokens] or null
  const int32_t* slots;    // the lists by expert
  const int32_t* offsets;  // [experts + 2]
  int32_t count, experts, per_token, of_group, capacity, greatest;
};
// kept = weights, 0 where ids are negative; NaN stays
struct KeptWeightsArgs {
  float* kept;
  const float* weights;
  const int32_t* ids;
  int64_t n;
};
// counts[e] (+)= the pairs of expert e, of tokens whose target is not negative. A block per expert.
struct ExpertCountsArgs {
  int64_t* counts;
  const int32_t* ids;
  const int32_t* targets;  // [count / per_token] or null
  int64_t count;
  int32_t per_token, accumulate;
};
struct RunningCountsArgs {
  float* now;
  const int64_t* counts;
  int64_t n;
};

// --- Around experts

// y = (clamp(up, ±limit) + 1) · g · logistic(alpha · g), g = min(gate, limit), of rows [gate | up]; with dy the gradients
// of both.
struct ClampedGatedArgs {
  void* out;
  const void* dy;
  const void* x;
  int64_t rows, width;
  float alpha, limit;
};
// The first q_width elements of a row times 1 + scale · log(1 + ⌊(position + 1) / floor⌋)
struct TemperArgs {
  void* y;
  const void* x;
  const int32_t* positions;
  int64_t rows, width, q_width;
  int64_t floor;
  float scale;
};
// begins = document_begins + ⌊position / size⌋ · size
struct ChunkBeginsArgs {
  int32_t* begins;
  const int32_t* positions;
  const int32_t* document_begins;  // null: 0
  int64_t n;
  int32_t size;
};
// Part *place of x, of n elements; place null: the first. Backward: x (+)= the part, and zeros elsewhere.
struct TakePartArgs {
  float* x;
  float* part;
  const int32_t* place;
  int64_t n, parts;
  int32_t accumulate;
};

}  // namespace strata::gpu
