// Experts that choose their tokens (Zhou et al. 2022, arXiv 2202.09368): of each group of tokens every expert
// takes the `capacity` ones that score it highest, so that all experts are equally busy and a token may have
// none or several. A slot is a place of an expert: M = groups · E · capacity of them, those of a group one
// behind the other, in it those of an expert.
#pragma once

#include "graph/graph.h"
#include "graph/op.h"
#include "ops/router.h"

namespace strata::ops {

struct ExpertChoiceAttrs {
  RouteAttrs::Score score = RouteAttrs::Score::kSoftmax;
  int64_t rows = 0;      // tokens of a group
  int64_t capacity = 0;  // at most as many
  double scale = 1;
  bool operator==(const ExpertChoiceAttrs&) const = default;
  void describe(graph::AttributeText& to) const {
    to("score", static_cast<int64_t>(score));
    to("rows", rows);
    to("capacity", capacity);
    to("scale", scale);
  }
};
struct ChosenTokens {
  graph::ValueId tokens;   // i32[M]: the place in its group of a slot's token, ascending within an expert
  graph::ValueId experts;  // i32[M, 1]: whose slot it is
  graph::ValueId weights;  // f32[M, 1]: the token's score of the expert · scale
};
// Of equal tokens the first is chosen; one with a logit that is not finite by every expert that has room,
// with NaN as weight, so that the loss shows it.
ChosenTokens expert_choice(graph::Graph& graph, graph::ValueId logits, const ExpertChoiceAttrs& attrs);
struct ExpertChoice {
  enum In : int { kLogits };
  enum Out : int { kTokens, kExperts, kWeights };
};
struct ExpertChoiceGrad {
  enum In : int { kDweights, kLogits, kTokens };
  enum Out : int { kDlogits };
};
extern const graph::OpDef kExpertChoice;      // (logits f32[N, E]) → tokens, experts, weights
extern const graph::OpDef kExpertChoiceGrad;  // (dweights, logits, tokens) → dlogits

// Rows of groups that take part in slots.
struct GroupRowsAttrs {
  int64_t rows = 0;   // tokens of a group
  int64_t slots = 0;  // of a group
  bool operator==(const GroupRowsAttrs&) const = default;
  void describe(graph::AttributeText& to) const {
    to("rows", rows);
    to("slots", slots);
  }
};
// y[M, d]: row m is row tokens[m] of its group in x[N, d].
graph::ValueId gather_rows(graph::Graph& graph, graph::ValueId x, graph::ValueId tokens,
                           const GroupRowsAttrs& attrs);
// y[N, d]: the sums of the rows of h[M, d] that are of the same token, in fp32 and in their order.
graph::ValueId scatter_rows(graph::Graph& graph, graph::ValueId h, graph::ValueId tokens,
                            const GroupRowsAttrs& attrs);
struct GroupRows {
  enum In : int { kX, kTokens };
  enum Out : int { kY };
};
extern const graph::OpDef kGatherRows;   // (x, tokens i32[M]) → y
extern const graph::OpDef kScatterRows;  // (h, tokens i32[M]) → y

}  // namespace strata::ops
