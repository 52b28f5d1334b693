// Soft mixtures of experts (Puigcerver et al. 2023, arXiv 2308.00951, algorithm 1): nothing is chosen. Each
// expert has some slots for a group of tokens; a slot is a mean of the group's tokens, weighted by a softmax
// over these, and a token's result a mean of all slots' results, weighted by a softmax over the slots.
#pragma once

#include "graph/graph.h"
#include "graph/op.h"

namespace strata::ops {

// S slots of a group, those of an expert one behind the other.
struct SoftExpertsAttrs {
  int64_t rows = 0;  // tokens of a group
  int64_t experts = 0;
  bool operator==(const SoftExpertsAttrs&) const = default;
  void describe(graph::AttributeText& to) const {
    to("rows", rows);
    to("experts", experts);
  }
};
struct SoftSlots {
  graph::ValueId slots;    // [groups · S, d]
  graph::ValueId experts;  // i32[groups · S, 1]: whose slot it is
  graph::ValueId weights;  // f32[groups · S, 1]: 1 each, for who wants weights of slots
};
// Of x[N, d] and logits f32[N, S].
SoftSlots soft_dispatch(graph::Graph& graph, graph::ValueId x, graph::ValueId logits,
                        const SoftExpertsAttrs& attrs);
// y[N, d] of the slots' results h[groups · S, d].
graph::ValueId soft_combine(graph::Graph& graph, graph::ValueId h, graph::ValueId logits,
                            const SoftExpertsAttrs& attrs);
struct SoftDispatch {
  enum In : int { kX, kLogits };
  enum Out : int { kSlots, kExperts, kWeights };
};
struct SoftDispatchGrad {
  enum In : int { kDslots, kX, kLogits };
  enum Out : int { kDx, kDlogits };
};
struct SoftCombine {
  enum In : int { kH, kLogits };
  enum Out : int { kY };
};
struct SoftCombineGrad {
  enum In : int { kDy, kH, kLogits };
  enum Out : int { kDh, kDlogits };
};
extern const graph::OpDef kSoftDispatch;      // (x, logits) → slots, experts
extern const graph::OpDef kSoftDispatchGrad;  // (dslots, x, logits) → dx, dlogits
extern const graph::OpDef kSoftCombine;       // (h, logits) → y
extern const graph::OpDef kSoftCombineGrad;   // (dy, h, logits) → dh, dlogits

}  // namespace strata::ops
