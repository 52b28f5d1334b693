// How evenly the tokens of a layer are spread over its experts.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace strata::observe {

// A layer of the model, and by expert how many slots of tokens went to it.
struct LayerTokens {
  int64_t layer = 0;
  std::vector<int64_t> tokens;
};

struct ExpertSpread {
  // The busiest expert's tokens above the mean, over the mean ("MaxVio", arXiv 2408.15664).
  double max_violation = 0;
  // Of the shares that experts have of the tokens, over that of equal shares: 1 where all are equally busy.
  double entropy = 0;
  // As many equally busy experts would have this entropy.
  double in_use = 0;
  int64_t dead = 0;  // experts that had no token
};
// Of the counts of a layer; nothing is in use where there were no tokens.
ExpertSpread spread_of(std::span<const int64_t> tokens);

}  // namespace strata::observe
