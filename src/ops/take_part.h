// The part of a vector of numbers of heads that belongs to the heads of a rank, where ranks of an axis share
// heads in attention alone (DeepSpeed-Ulysses): of n numbers the r-th of R ranks takes [r · n/R, (r + 1) ·
// n/R).
#pragma once

#include "graph/graph.h"

namespace strata::ops {

struct TakePartAttrs {
  graph::Axis axis = {};
  int64_t ranks = 1;  // along it; 1 before localize()
  bool operator==(const TakePartAttrs&) const = default;
  void describe(graph::AttributeText& to) const {
    to("axis", name_of(axis));
    to("ranks", ranks);
  }
};

// x f32[n], a parameter that all ranks of the axis have; its gradient is a term of a sum over them.
graph::ValueId take_part(graph::Graph& graph, graph::ValueId x, graph::Axis axis);
struct TakePart {
  enum In : int { kX, kRank };
  enum Out : int { kY };
};
struct TakePartGrad {
  enum In : int { kDy, kRank };
  enum Out : int { kDx };
};
extern const graph::OpDef kTakePart;      // (x, rank block) → y f32[n/R]
extern const graph::OpDef kTakePartGrad;  // (dy, rank block) → accumulates into grad[n]

}  // namespace strata::ops
