// Which results of a program's instructions have a row for each token of the batch.
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
  size_t rows = 0;  // which of ProgramRows::maps
  int64_t row_bytes = 0;
};

struct ProgramRows {
  // Rows of the whole micro-batch, in the order in which a rank holds them; nothing for rows of an encoder
  // beside a decoder, which see no token of the decoder.
  struct Map {
    bool of_encoder = false;
    std::vector<int64_t> rows;
  };
  std::vector<Map> maps;
  std::vector<std::vector<TokenRows>> by_node;  // of what runs forward, or again in backward
  int64_t values = 0;
  std::vector<std::string> unseen;  // ops that read the batch and give no such rows, each once
};

// Of the rank at `coordinates` on the programs' mesh.
ProgramRows find_token_rows(const program::ProgramSet& set, const program::Program& program,
                            const graph::Coordinates& coordinates);

// Whether a node is part of what makes the hidden states and the loss.
bool runs_forward(const graph::Node& node);

}  // namespace strata::evaluation
