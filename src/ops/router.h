// Which experts a token goes to, with what weight, and what keeps experts equally busy. N tokens, E experts,
// k of them a token. Logits, scores and weights are fp32 whatever the activations are.
#pragma once

#include "graph/graph.h"
#include "graph/op.h"

namespace strata::ops {

// The same number in another type, and its gradient back; x itself where it has the type.
graph::ValueId cast(graph::Graph& graph, graph::ValueId x, DType dtype);
struct CastAttrs {
  DType dtype = DType::kF32;
  bool operator==(const CastAttrs&) const = default;
  void describe(graph::AttributeText& to) const { to("dtype", name_of(dtype)); }
};
struct Cast {
  enum In : int { kX };
  enum Out : int { kY };
};
extern const graph::OpDef kCast;

// The last `count` of each `sequence` rows, which only fill sequences up to what ranks can share.
struct IdleRows {
  int64_t sequence = 1, count = 0;
  bool has(int64_t row) const { return row % sequence >= sequence - count; }
  bool operator==(const IdleRows&) const = default;
  void describe(graph::AttributeText& to) const {
    if (count > 0) to("idle_rows", count);
  }
};

// Scores s of an expert from its logit; the k experts with the greatest s + bias are chosen (of equal ones
// the first), and their weights are s, divided by their sum where `normalize` says so, times `scale`. The
// bias chooses and never weighs (DeepSeek-V3, arXiv 2412.19437, §2.1.2). A token with a logit that is not
// finite goes to some k experts with NaN as weights, so that the loss shows it. With groups of experts only
// those of the `kept_groups` best groups are chosen from.
struct RouteAttrs {
  enum class Score : uint8_t { kSoftmax, kSigmoid };
  // What a group counts: its best expert (DeepSeek-V2), its best two together (V3), or all.
  enum class GroupScore : uint8_t { kBest, kBestTwo, kSum };
  int64_t k = 1;
  Score score = Score::kSoftmax;
  bool normalize = false;
  double normalize_eps = 0;  // added to the sum that normalizes
  double scale = 1;
  int64_t groups = 1, kept_groups = 1;
  GroupScore group_score = GroupScore::kBest;
  // Token n's slot s goes to expert (n · k + s) mod E whatever the logits say: for benchmarks.
  bool force_balanced = false;
  // Where tokens are given, these choose instead of the logits, which weigh: slot s goes to the (r mod (E −
  // s)) -th of the experts that are left, r the first number that philox draws of this stream at counter
  // token and high counter s (hash layers, Roller et al. 2021, arXiv 2106.04426).
  int64_t hash_stream = 0;
  bool operator==(const RouteAttrs&) const = default;
  void describe(graph::AttributeText& to) const {
    to("k", k);
    to("score", static_cast<int64_t>(score));
    to("normalize", normalize);
    to("normalize_eps", normalize_eps);
    to("scale", scale);
    if (groups > 1) {
      to("groups", groups);
      to("kept_groups", kept_groups);
      to("group_score", static_cast<int64_t>(group_score));
    }
    if (force_balanced) to("force_balanced", force_balanced);
    if (hash_stream != 0) to("hash_stream", hash_stream);
  }
};
struct Routed {
  graph::ValueId ids;      // i32[N, k], the greatest s + bias first
  graph::ValueId weights;  // f32[N, k]
};
Routed route(graph::Graph& graph, graph::ValueId logits, graph::ValueId bias, const RouteAttrs& attrs,
             graph::ValueId tokens = graph::kNone);
struct Route {
  enum In : int { kLogits, kBias, kTokens };
  enum Out : int { kIds, kWeights };
};
struct RouteGrad {
  enum In : int { kDweights, kLogits, kIds };
  enum Out : int { kDlogits };
};
extern const graph::OpDef kRoute;      // (logits f32[N, E], bias? f32[E], tokens? i32[N]) → ids, weights
extern const graph::OpDef kRouteGrad;  // (dweights, logits, ids) → dlogits

// y[M, W] = x[M, W] · weights, one for each row; weights f32 with M elements of any shape.
graph::ValueId scale_rows(graph::Graph& graph, graph::ValueId x, graph::ValueId weights);
struct ScaleRows {
  enum In : int { kX, kWeights };
  enum Out : int { kY };
};
struct ScaleRowsGrad {
  enum In : int { kDy, kX, kWeights };
  enum Out : int { kDx, kDweights };
};
extern const graph::OpDef kScaleRows;      // (x, weights) → y
extern const graph::OpDef kScaleRowsGrad;  // (dy, x, weights) → dx, dweights

// Of each group of `rows` tokens (0: of all): the sum of the tokens' probabilities f32[G, E] (softmax;
// sigmoid scores divided by their sum), and how many of their slots went to each expert.
struct RouterSumsAttrs {
  RouteAttrs::Score score = RouteAttrs::Score::kSoftmax;
  int64_t rows = 0;
  IdleRows idle = {};  // do not count
  bool operator==(const RouterSumsAttrs&) const = default;
  void describe(graph::AttributeText& to) const {
    to("score", static_cast<int64_t>(score));
    to("rows", rows);
    idle.describe(to);
  }
};
struct RouterSumsOf {
  graph::ValueId probabilities, counts;  // f32[G, E]
};
RouterSumsOf router_sums(graph::Graph& graph, graph::ValueId logits, graph::ValueId ids,
                         const RouterSumsAttrs& attrs);
struct RouterSums {
  enum In : int { kLogits, kIds };
  enum Out : int { kProbabilities, kCounts };
};
struct RouterSumsGrad {
  enum In : int { kDprobabilities, kLogits };
  enum Out : int { kDlogits };
};
extern const graph::OpDef kRouterSums;      // (logits, ids) → probabilities, counts
extern const graph::OpDef kRouterSumsGrad;  // (dprobabilities, logits) → dlogits

// The auxiliary loss that balances experts (Switch Transformers, arXiv 2101.03961, eq. 4 to 6; DeepSeek-V3's
// sequence-wise one): of a group with T tokens coefficient · E / (k T C) · Σᵢ countsᵢ · probabilitiesᵢ, which
// is the coefficient where experts are equally busy. C is how many tokens the counts are of: T, or, where all
// groups have the same counts, f32[1, E], those of other groups and micro-batches too. A group counts as
// often as it has targets, so that the loss has the main one's denominator; targets i32[N], those below 0 do
// not count. Counts carry no gradient.
struct BalanceLossAttrs {
  double coefficient = 0;
  int64_t k = 1;
  int64_t rows = 0;    // targets of a group
  int64_t tokens = 0;  // T: of a group, in all layers whose probabilities were added up
  bool operator==(const BalanceLossAttrs&) const = default;
  void describe(graph::AttributeText& to) const {
    to("coefficient", coefficient);
    to("k", k);
    to("rows", rows);
    to("tokens", tokens);
  }
};
// Adds to `sum`, an accumulator f64[1].
void balance_loss(graph::Graph& graph, const RouterSumsOf& sums, graph::ValueId targets, graph::ValueId sum,
                  const BalanceLossAttrs& attrs);
struct BalanceLoss {
  enum In : int { kProbabilities, kCounts, kTargets };
  enum Out : int { kSum };
};
struct BalanceLossGrad {
  enum In : int { kCounts, kTargets };
  enum Out : int { kDprobabilities };
};
extern const graph::OpDef kBalanceLoss;      // (probabilities, counts, targets) → accumulates into sum
extern const graph::OpDef kBalanceLossGrad;  // (counts, targets) → dprobabilities

// The z-loss (ST-MoE, arXiv 2202.08906, eq. 5): coefficient · (log Σ exp logits)² of every token with a
// target. With `rows`, logits are of sequences of so many tokens that have no targets of their own, an
// encoder's: those of a sequence count together as often as it has targets.
struct ZLossAttrs {
  double coefficient = 0;
  int64_t rows = 0;
  bool operator==(const ZLossAttrs&) const = default;
  void describe(graph::AttributeText& to) const {
    to("coefficient", coefficient);
    if (rows > 0) to("rows", rows);
  }
};
void router_z_loss(graph::Graph& graph, graph::ValueId logits, graph::ValueId targets, graph::ValueId sum,
                   const ZLossAttrs& attrs);
struct RouterZLoss {
  enum In : int { kLogits, kTargets };
  enum Out : int { kSum };
};
struct RouterZLossGrad {
  enum In : int { kLogits, kTargets };
  enum Out : int { kDlogits };
};
extern const graph::OpDef kRouterZLoss;      // (logits, targets) → accumulates into sum
extern const graph::OpDef kRouterZLossGrad;  // (logits, targets) → dlogits

}  // namespace strata::ops
