// Balancing experts without a loss (Wang et al. 2024, arXiv 2408.15664): once a step, after all loads of it
// are known, the bias by which experts are chosen rises where there were fewer tokens than the mean, and
// falls where there were more.
#pragma once

#include "graph/graph.h"
#include "graph/op.h"

namespace strata::optim {

struct RouterBiasAttrs {
  double rate = 0;
  bool operator==(const RouterBiasAttrs&) const = default;
  void describe(graph::AttributeText& to) const { to("rate", rate); }
};
struct RouterBiasUpdate {
  enum In : int { kBias, kLoads, kScalars };
  enum Out : int { kNewBias };
};
// (bias f32[E], loads i64[E], scalars) → bias + rate · sign(mean of the loads − load), over the bias. A step
// that is skipped leaves it.
extern const graph::OpDef kRouterBiasUpdate;

// Adds the node of a parameter of the role kRouterBias.
void balance_router(graph::Graph& graph, const graph::Parameter& bias, graph::ValueId scalars);

}  // namespace strata::optim
