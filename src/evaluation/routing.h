// Which experts a model's tokens go to.
#pragma once

#include <map>
#include <vector>

#include "evaluation/evaluate.h"
#include "observe/expert_load.h"

namespace strata::evaluation {

struct RoutingResult {
  EvalResult loss;
  // Ascending; of every token with a target the slots that went to each expert.
  std::vector<observe::LayerTokens> layers;
};

// evaluate() of one rank that also counts, in the kernels' own results, where each token went.
RoutingResult evaluate_routing(program::Executor& executor, size_t index, const data::EvalWindows& windows,
                               const std::function<bool(double done)>& go_on = {});

// How far the sources of a layer's tokens use experts of their own.
struct Specialisation {
  // What the source of a token tells of its expert, and the other way round, in bits: the entropy of the
  // sources' mean shares less the mean of their entropies. Each source counts alike, however many tokens it
  // has.
  double information = 0;
  // The same over its greatest value, the logarithm of the number of sources: 0 where all sources use experts
  // alike, 1 where none is used by two.
  double share = 0;
};
// `sources`: of each one the counts of the layer's experts; those without any token are left out.
Specialisation specialisation_of(const std::vector<std::vector<int64_t>>& sources);

}  // namespace strata::evaluation
