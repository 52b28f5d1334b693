// The graph of a model for one kind of program.
#pragma once

#include "program/program.h"

namespace strata::program {

// kTrain: loss, gradients and update; kEvaluate: loss; kPrefill: fills the caches and computes the logits of
// the row "last_row" of the chunk; kDecode: the same for one token; kEncoderPrefill: fills the caches of an
// encoder's tokens. Logits are f32[1, V], named "logits".
struct ModelGraph {
  graph::Graph graph;
  std::vector<optim::State> states;  // kTrain
  std::vector<Message> messages;     // of a rank of a pipeline
  int32_t chunks = 1;
};
ModelGraph build_graph(const Request& request, const CompileOptions& options);

}  // namespace strata::program
