// Adds a model's head to a graph: losses, or logits.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/differentiate.h"
#include "models/model.h"

namespace strata::models {

struct Losses {
  std::vector<graph::WeightedLoss> all;       // the main one first, then those of further tokens
  graph::ValueId token_count = graph::kNone;  // its terms so far, by which the update divides
};
// How the loss is computed, with the same bits.
enum class LossForm : uint8_t {
  // Loss and gradients in one instruction: three matmuls of the head's size. Ranks that shard the head first
  // reduce the statistics of their logits: four matmuls, and different bits due to the order of additions.
  kFused,
  // Forward, input gradient and weight gradient apart, for programs that run them at different times: five
  // matmuls.
  kSplit,
};
// Losses of the batch's targets, and of further tokens if the model predicts some. The latter have separate
// terms in the per-step parameters (program/update.h); their metrics have the indices from 1 on. `per_token`:
// also the loss of each token and whether it is the most probable. `target_share`: average fraction of tokens
// that have a target.
Losses add_losses(layers::Context& context, const Hidden& hidden, bool per_token,
                  LossForm form = LossForm::kFused, double target_share = 1);

// "logits" f32[sequences, V] of a generating program: of row "last_row" of a chunk, or of every text's newest
// token.
void add_logits(layers::Context& context, const Hidden& hidden);

}  // namespace strata::models
