// Pairs of batches that differ in later tokens.
#pragma once

#include <cstdint>
#include <vector>

#include "data/samples/loader.h"
#include "program/program.h"

namespace strata::evaluation {

// The micro-batches of one step, over all ranks: sequence s of micro-batch m is row m · sequences + s.
struct ProbeShape {
  data::RowShape row{};
  int64_t sequences = 0, micro_batches = 1;
  int64_t vocabulary = 0;
  bool documents = false;  // several in a sequence, which must not see each other
  int64_t rows() const { return sequences * micro_batches; }
};
ProbeShape probe_shape(const program::ProgramSet& set, const program::Program& program, bool documents);

struct Probe {
  data::HostBatch before, after;  // identical except for tokens
  // By sequence, the positions with changed tokens: up to the end of a document.
  struct Change {
    int64_t from = 0, to = 0;
  };
  std::vector<Change> changes;
  std::vector<uint8_t> may_move;  // by sequence and position
};

// Positions of a sequence at which changes begin, the most revealing first: the ends and the tile edges of
// kernels, then random ones.
std::vector<int64_t> probe_positions(int64_t length, int64_t count, uint64_t seed);

// Sequence i changes from positions[(first + i) % positions.size()] on.
Probe make_probe(const ProbeShape& shape, const std::vector<int64_t>& positions, int64_t first,
                 uint64_t seed);

}  // namespace strata::evaluation
