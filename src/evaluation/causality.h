// Whether a program is causal: no row of any value may depend on a later token of its document, on another
// document, or on another sequence.
//
// The proof is by trial, on the very program that a run executes. Each probe runs the micro-batches twice;
// the second time every sequence has other tokens from some place to the end of that document. Targets are
// the same, and those of the rows that may change are not counted. Then no other row of any activation may
// move, nor the loss. What moves although nothing that it is made of did is the leak.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "evaluation/token_rows.h"
#include "program/executor.h"

namespace strata::evaluation {

struct CausalityOptions {
  int64_t positions = 64;  // of a sequence, at which changes begin: at most as many as it has
  // Whether a sequence holds several documents that must not see each other, as data.pack has it.
  bool documents = true;
  uint64_t seed = 1;
  std::function<void(double done)> progress = {};
};

struct Leak {
  std::string op;                // of the node that lets it through
  int32_t layer = graph::kNone;  // kNone: outside the model's blocks
  std::string value;             // what it gives
  double largest = 0;            // by which it moved
  bool in_loss = false;          // it is the sum of losses, without any row
  // Else where it moved first: a row, in front of or apart from the tokens that were changed.
  int64_t micro_batch = 0, sequence = 0, row = 0;
  int64_t changed_from = 0, changed_to = 0;  // of that row's own sequence: places [from, to)
};

struct Causality {
  std::vector<Leak> leaks;  // in the order of the step; what is behind another leak cannot be told from it
  int64_t positions = 0;    // that were tried
  int64_t probes = 0;
  int64_t values = 0;               // activations whose rows were compared, on the first rank
  std::vector<std::string> unseen;  // ops whose results have no row a token: seen by what reads them
  bool causal() const { return leaks.empty(); }
};

// ConfigError for a model that sees both ways by design: an encoder. Of an encoder-decoder the decoder is
// checked, whose encoder's tokens stay what they are.
void require_causal_design(const models::ModelConfig& model);

// Of program `index`, Kind::kTrain or kEvaluate, of an executor with weights, encoded. Weights are not
// changed, batches are. Where the executor has ranks, all of them call it, and all get the same answer.
// ConfigError as require_causal_design().
Causality check_causality(program::Executor& executor, size_t index, const CausalityOptions& options);

}  // namespace strata::evaluation
