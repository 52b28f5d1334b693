// What a model's head makes of its last hidden states: losses, or logits.
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
  // Loss and gradients in one instruction: three products of the head's size. Where ranks share the head they
  // first reduce the statistics of their logits: four products, and other bits by the order of additions.
  kFused,
  // Forward, input gradient and weight gradient apart, for programs that run them at different times: five
  // products.
  kSplit,
};
// Of the batch's targets, and of further tokens where the model predicts some. These have terms of their own,
// in the step block (program/update.h); their metrics have the indices from 1 on. `per_token`: also the loss
// of each token and whether it is the most probable. `target_share`: of the tokens that have a target, on
// average.
Losses add_losses(layers::Context& context, const Hidden& hidden, bool per_token,
                  LossForm form = LossForm::kFused, double target_share = 1);

// "logits" f32[sequences, V] of a generating program: of row "last_row" of a chunk, or of every text's newest
// token.
void add_logits(layers::Context& context, const Hidden& hidden);

}  // namespace strata::models
