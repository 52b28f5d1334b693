// Products of a mixture of experts (grouped GEMMs). N tokens, each with k slots; ids[N, k] says which of the
// E experts a slot goes to. The weights of all experts are one matrix w[E · O, K], expert by expert. What
// lies between the products has a row a slot, [N · k, …], row n · k + s for slot s of token n, so that a part
// of the tokens is a part of the rows; that rows are brought together by expert is a kernel's own business.
// An expert may have no slot, and a slot no expert: its id is -1, its row of a product 0.
//
// Where tokens have any number of slots (of the tokens that other ranks have sent), offsets i32[N + 1] say
// which: token n's are [offsets[n], offsets[n + 1]), ids is i32[S, 1] with room for S of them, and S stands
// for N · k below. Rows of slots that no token has are zeros.
#pragma once

#include "graph/graph.h"
#include "graph/op.h"

namespace strata::ops {

struct ExpertsAttrs {
  int64_t experts = 0;
  bool operator==(const ExpertsAttrs&) const = default;
  void describe(graph::AttributeText& to) const { to("experts", experts); }
};

// y[N · k, O]: row n · k + s = w[ids[n, s]] · x[n], of x[N, K].
graph::ValueId experts_in(graph::Graph& graph, graph::ValueId x, graph::ValueId ids, graph::ValueId weight,
                          int64_t experts, graph::ValueId offsets = graph::kNone);
// y[N, O]: row n = the sum over s of w[ids[n, s]] · h[n · k + s], of h[N · k, K]; sums in fp32.
graph::ValueId experts_out(graph::Graph& graph, graph::ValueId h, graph::ValueId ids, graph::ValueId weight,
                           int64_t experts, graph::ValueId offsets = graph::kNone);

// Checks ids and offsets of a node.
void require_slots(const graph::NodeView& view, int ids, int offsets);
// N, of a node with these operands.
int64_t tokens_of(const graph::NodeView& view, int ids, int offsets);

struct ExpertsIn {
  enum In : int { kX, kIds, kWeight, kOffsets };
  enum Out : int { kY };
};
struct ExpertsOut {
  enum In : int { kH, kIds, kWeight, kOffsets };
  enum Out : int { kY };
};
struct ExpertsGradInput {
  enum In : int { kDy, kIds, kWeight, kOffsets };
  enum Out : int { kDx };
};
// kX: what the product read; one of kDy and kX has a row a token, the other a row a slot.
struct ExpertsGradWeight {
  enum In : int { kDy, kX, kIds, kOffsets };
  enum Out : int { kDweight };
};
extern const graph::OpDef kExpertsIn;           // (x, ids, w, offsets?) → y
extern const graph::OpDef kExpertsInGradInput;  // (dy[N · k, O], ids, w, offsets?) → dx[N, K]
extern const graph::OpDef
    kExpertsInGradWeight;  // (dy[N · k, O], x[N, K], ids, offsets?) → accumulates grad[E · O, K]
extern const graph::OpDef kExpertsOut;           // (h, ids, w, offsets?) → y
extern const graph::OpDef kExpertsOutGradInput;  // (dy[N, O], ids, w, offsets?) → dh[N · k, K]
extern const graph::OpDef
    kExpertsOutGradWeight;  // (dy[N, O], h[N · k, K], ids, offsets?) → accumulates grad[E · O, K]

// Biases of experts, b[E · C], one behind the other. Without weights x has a row a slot: y = x + the bias of
// the slot's expert. With weights f32[N, k], beside offsets f32[S], x has a row a token: y = x + the sum over
// its slots of weight · bias. A slot that goes nowhere, or that no token has, adds nothing.
graph::ValueId add_expert_bias(graph::Graph& graph, graph::ValueId x, graph::ValueId ids,
                               graph::ValueId weights, graph::ValueId bias, int64_t experts,
                               graph::ValueId offsets = graph::kNone);
struct ExpertBias {
  enum In : int { kX, kIds, kWeights, kBias, kOffsets };
  enum Out : int { kY };
};
struct ExpertBiasGrad {
  enum In : int { kDy, kIds, kWeights, kOffsets };
  enum Out : int { kDbias };
};
struct ExpertBiasGradWeights {
  enum In : int { kDy, kIds, kBias, kOffsets };
  enum Out : int { kDweights };
};
extern const graph::OpDef kExpertBias;      // (x, ids, weights?, b, offsets?) → y
extern const graph::OpDef kExpertBiasGrad;  // (dy, ids, weights?, offsets?) → accumulates grad[E · C]
extern const graph::OpDef kExpertBiasGradWeights;  // (dy[N, C], ids, b, offsets?) → dweights

// counts i64[E]: slots that went to each expert, an accumulator over a step. With targets i32[N] those of
// tokens that have one: rows that only fill a batch up have none, and must not move what balances experts.
void count_experts(graph::Graph& graph, graph::ValueId ids, graph::ValueId targets, graph::ValueId counts);
struct ExpertCounts {
  enum In : int { kIds, kTargets };
  enum Out : int { kCounts };
};
extern const graph::OpDef kExpertCounts;  // (ids, targets?) → accumulates into counts

// f32[1, E]: what an accumulator of counts has at this place of a micro-batch.
graph::ValueId running_counts(graph::Graph& graph, graph::ValueId counts);
struct RunningCounts {
  enum In : int { kCounts };
  enum Out : int { kNow };
};
extern const graph::OpDef kRunningCounts;  // (counts i64[E]) → now

}  // namespace strata::ops
