// Parameters of the GPU kernels of the split loss and of what surrounds losses (src/ops/loss, predict; args.h).
#pragma once

#include <cstdint>

namespace strata::gpu {

// Of rows of logits[rows][columns · parts], the rows' first token being token 0 here. `tokens` separates the parts of
// statistics[parts][tokens][3]. Part p has the columns of the vocabulary from starts[p] on (null: from 0).
struct SplitLossArgs {
  const float* logits;
  void* gradient;  // may be the logits; only of the gradient
  const int32_t* targets;
  const int32_t* starts;
  float* statistics;  // backward: read
  const float* dstatistics;
  int64_t tokens, stride;
  int32_t parts, columns, vocabulary;
  float softcap;
};
// Losses of tokens from statistics, and the gradient of statistics.
struct LossOfStatisticsArgs {
  const float* statistics;  // [parts, tokens, 3]
  float* dstatistics;
  const int32_t* targets;
  float* losses;      // [tokens]
  int32_t* greedy;    // [tokens]; may be null
  const float* seed;  // may be null: 1
  int32_t tokens, parts;
};

// As ops::TargetsAhead has them.
struct TargetsAheadArgs {
  int32_t* tokens;
  int32_t* ahead_out;
  const int32_t* targets;
  const int32_t* ahead;
  int32_t rows, length;
};
// seed = weight · main_terms / terms, 0 without terms.
struct LossSeedArgs {
  float* seed;
  const int64_t* main_terms;
  const int64_t* terms;
  double weight;
};

}  // namespace strata::gpu
