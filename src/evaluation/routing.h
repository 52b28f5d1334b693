// Which experts a model's tokens go to.
#pragma once

#include <map>
#include <vector>

#include "evaluation/evaluate.h"
#include "observe/expert_load.h"

namespace strata::evaluation {

// Of layers in ascending order, how many slots went to each expert.
using LayerCounts = std::vector<observe::LayerTokens>;

struct RoutingResult {
  EvalResult loss;
  LayerCounts layers;            // of every token with a target
  std::vector<int64_t> dropped;  // by layer: slots that found no room at their expert
};

// evaluate() that also counts, in the kernels' own results, where each token went. Of ranks: in the windows
// and the layers that this rank has.
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
// The mean share of all layers: `sources` are the layers of each, the same ones. 0 without layers.
double mean_specialisation(const std::vector<LayerCounts>& sources);

}  // namespace strata::evaluation
