// Measures how evenly the tokens of a layer are distributed over its experts.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace strata::observe {

// A layer of the model and its token–expert pairs, by expert.
struct LayerTokens {
  int64_t layer = 0;
  std::vector<int64_t> tokens;
};

struct ExpertSpread {
  // The busiest expert's tokens above the mean, over the mean ("MaxVio", arXiv 2408.15664).
  double max_violation = 0;
  // Entropy of the experts' shares of tokens over that of equal shares: 1 if all experts are equally busy.
  double entropy = 0;
  // The number of equally busy experts with this entropy.
  double in_use = 0;
  int64_t dead = 0;  // experts without a token
};
// The spread of a layer's counts. Without tokens, all but `dead` is 0.
ExpertSpread spread_of(std::span<const int64_t> tokens);

}  // namespace strata::observe
