// Checks that a program is causal: no row of any value may depend on a later token of its document, on
// another document, or on another sequence.
//
// The check tests the program that a run executes. Each probe runs the micro-batches twice; in the second run
// every sequence has other tokens from some position to the end of that document. Targets are the same, and
// rows that may change have none. Then no other row of any activation may change, nor the loss. A node whose
// result changes although its inputs do not is the leak.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "evaluation/token_rows.h"
#include "program/executor.h"

namespace strata::evaluation {

struct CausalityOptions {
  int64_t positions = 64;  // per sequence, at which changes begin; at most its length
  // Whether a sequence holds several documents that must not see each other, as with data.pack.
  bool documents = true;
  uint64_t seed = 1;
  std::function<void(double done)> progress = {};
};

struct Leak {
  std::string op;                // of the leaking node
  int32_t layer = graph::kNone;  // kNone: outside the model's blocks
  std::string value;             // its result
  double largest = 0;            // the largest change
  bool in_loss = false;          // the result is the sum of losses, without rows
  // Otherwise the first row that changed: before the changed tokens, or in another document.
  int64_t micro_batch = 0, sequence = 0, row = 0;
  int64_t changed_from = 0, changed_to = 0;  // the changed positions [from, to) of that row's sequence
};

struct Causality {
  std::vector<Leak> leaks;  // in execution order; a leak may hide later ones
  int64_t positions = 0;    // tested
  int64_t probes = 0;
  int64_t values = 0;  // activations whose rows were compared, on the first rank
  std::vector<std::string>
      unseen;  // ops without a row per token in their results: checked through their readers
  bool causal() const { return leaks.empty(); }
};

// ConfigError for an encoder, which sees later tokens by design. For an encoder-decoder the decoder is
// checked, with the encoder's tokens unchanged.
void require_causal_design(const models::ModelConfig& model);

// Checks program `index` (Kind::kTrain or kEvaluate) of an executor whose weights are loaded and packed.
// Overwrites its batches, not its weights. All ranks of the executor must call it, and all get the same
// result. ConfigError as for require_causal_design().
Causality check_causality(program::Executor& executor, size_t index, const CausalityOptions& options);

}  // namespace strata::evaluation
