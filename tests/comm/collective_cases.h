// Collectives with buffers and expected results, for every engine.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "comm/world.h"

namespace strata::comm {

enum class Pattern { kAllGather, kAllToAll, kReduceScatter, kAllReduce, kBroadcast };

// How members lie in fast domains.
enum class Domaining { kOne, kUneven, kInterleaved, kSingles };

struct Case {
  std::string name;
  Pattern pattern = Pattern::kAllReduce;
  std::vector<DType> dtypes;  // a transfer each
  int64_t elements = 0;       // about so many for each member; shards are ragged, and some are empty
  DType payload = DType::kF32;
  bool adds = false;
  bool in_place = false;
  Domaining domaining = Domaining::kOne;
};

// The table, the same on every engine and for every number of ranks.
std::vector<Case> collective_cases();

using Bytes = std::vector<std::byte>;

Topology topology_of(Domaining domaining, int size);
// The receive buffers by member and transfer, as they must be: computed from all members' buffers as the
// contract says.
std::vector<std::vector<Bytes>> expected_results(const Case& one, int size);
// As the collective makes them.
std::vector<Bytes> run_case(Communicator& communicator, const Case& one);

// One member's part, for tests that start collectives themselves.
struct Member {
  Operation operation;
  std::vector<Bytes> send, receive;
  std::vector<Buffers> buffers;
};
Member member_of_case(const Case& one, int rank, int size);

// All cases on all ranks' groups (one for each topology), in order.
std::vector<std::vector<Bytes>> run_all_cases(World& world, const std::vector<Case>& cases);

}  // namespace strata::comm
