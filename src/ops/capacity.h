// Experts with room for a bounded number of tokens. Of each group of tokens an expert takes at most so many
// slots; those that are over are dropped: no expert gets them, and their weight is 0.
#pragma once

#include "graph/graph.h"
#include "graph/op.h"
#include "ops/router.h"

namespace strata::ops {

struct CapacityAttrs {
  // Which slots of an expert that has too many stay: the first in the order of tokens, or those with the
  // greatest scores (of equal ones the first).
  enum class Keep : uint8_t { kFirst, kGreatest };
  int64_t experts = 0;
  int64_t rows = 0;      // tokens of a group
  int64_t capacity = 0;  // slots of a group that an expert has room for
  Keep keep = Keep::kFirst;
  IdleRows idle = {};  // have no slots, and take no room
  bool operator==(const CapacityAttrs&) const = default;
  void describe(graph::AttributeText& to) const {
    to("experts", experts);
    to("rows", rows);
    to("capacity", capacity);
    to("keep", static_cast<int64_t>(keep));
    idle.describe(to);
  }
};

// The ids, with -1 where a slot is dropped. `begins` i32[N], or kNone: where in its sequence a token's
// document begins; with Keep::kFirst every document finds all the room. A slot whose score is not a number
// is never dropped, so that the loss shows it.
graph::ValueId limit_experts(graph::Graph& graph, graph::ValueId ids, graph::ValueId scores,
                             graph::ValueId begins, const CapacityAttrs& attrs);
struct LimitExperts {
  enum In : int { kIds, kWeights, kBegins };
  enum Out : int { kKept };
};
extern const graph::OpDef
    kLimitExperts;  // (ids i32[N, k], scores f32[N, k], begins? i32[N]) → kept i32[N, k]

// weights f32[N, k], 0 where an id is -1.
graph::ValueId weights_of_kept(graph::Graph& graph, graph::ValueId weights, graph::ValueId ids);
struct WeightsOfKept {
  enum In : int { kWeights, kIds };
  enum Out : int { kKept };
};
extern const graph::OpDef kWeightsOfKept;  // (weights, ids) → kept; its own gradient

}  // namespace strata::ops
