// Routing statistics: the experts that a model's tokens go to.
#pragma once

#include <map>
#include <vector>

#include "evaluation/evaluate.h"
#include "observe/expert_load.h"

namespace strata::evaluation {

// Token–expert pairs by expert, for layers in ascending order.
using LayerCounts = std::vector<observe::LayerTokens>;

struct RoutingResult {
  EvalResult loss;
  LayerCounts layers;            // of all tokens with targets
  std::vector<int64_t> dropped;  // by layer: token–expert pairs dropped by full experts
};

// evaluate() that also counts the tokens of each expert, from the routing results in memory. On ranks: over
// the windows and layers of this rank.
RoutingResult evaluate_routing(program::Executor& executor, size_t index, const data::EvalWindows& windows,
                               const std::function<bool(double done)>& go_on = {});

// How far the sources of a layer's tokens use different experts.
struct Specialisation {
  // Mutual information of a token's source and its expert, in bits: the entropy of the sources' mean shares
  // minus their mean entropy. Every source has the same weight, regardless of its number of tokens.
  double information = 0;
  // `information` relative to its maximum, the logarithm of the number of sources: 0 if all sources use
  // experts identically, 1 if no expert is used by two sources.
  double share = 0;
};
// `sources`: counts of the layer's experts by source; sources without tokens are ignored.
Specialisation specialisation_of(const std::vector<std::vector<int64_t>>& sources);
// The mean `share` over layers; all `sources` have the same layers. 0 without layers.
double mean_specialisation(const std::vector<LayerCounts>& sources);

}  // namespace strata::evaluation
