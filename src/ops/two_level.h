// Routing on two levels (Shazeer et al. 2017, appendix B): a group of experts first, then an expert of it.
// The probability of an expert is its group's times its own within the group; as logits these are
//   y[n, e] = log softmax(groups[n])[g] + log softmax(logits[n] of group g)[e],  g the group of e,
// whose softmax is the product, so that whatever follows routes as ever.
#pragma once

#include "graph/graph.h"
#include "graph/op.h"

namespace strata::ops {

// groups f32[N, G], logits f32[N, E], E a multiple of G: expert e is in group e / (E / G).
graph::ValueId two_level_logits(graph::Graph& graph, graph::ValueId groups, graph::ValueId logits);
struct TwoLevelLogits {
  enum In : int { kGroups, kLogits };
  enum Out : int { kY };
};
struct TwoLevelLogitsGrad {
  enum In : int { kDy, kGroups, kLogits };
  enum Out : int { kDgroups, kDlogits };
};
extern const graph::OpDef kTwoLevelLogits;      // (groups, logits) → y
extern const graph::OpDef kTwoLevelLogitsGrad;  // (dy, groups, logits) → dgroups, dlogits

}  // namespace strata::ops
