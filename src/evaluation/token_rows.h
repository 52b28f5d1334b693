// Finds the results of a program's instructions that have a row for each token of the batch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "program/program.h"

namespace strata::evaluation {

// A result whose rows are tokens.
struct TokenRows {
  size_t operand = 0;  // of its instruction
  graph::ValueId value = graph::kNone;
  size_t rows = 0;  // index into ProgramRows::maps
  int64_t row_bytes = 0;
};

struct ProgramRows {
  // For each row of a rank, in its order, the row of the whole micro-batch: of the encoder's batch if
  // of_encoder, whose rows see no token of the decoder.
  struct Map {
    bool of_encoder = false;
    std::vector<int64_t> rows;
  };
  std::vector<Map> maps;
  std::vector<std::vector<TokenRows>> by_node;  // for nodes of forward and recompute
  int64_t values = 0;
  std::vector<std::string> unseen;  // ops that read the batch but have no such rows, each once
};

// For the rank at `coordinates` on the programs' mesh.
ProgramRows find_token_rows(const program::ProgramSet& set, const program::Program& program,
                            const graph::Coordinates& coordinates);

// Whether a node computes hidden states or the loss (forward or recompute).
bool runs_forward(const graph::Node& node);

}  // namespace strata::evaluation
