// Collectives with buffers and expected results, for every engine.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "comm/world.h"

namespace strata::comm {

enum class Pattern { kAllGather, kAllToAll, kReduceScatter, kAllReduce, kBroadcast };

// Assignments of members to fast domains.
enum class Domaining { kOne, kUneven, kInterleaved, kSingles };

struct Case {
  std::string name;
  Pattern pattern = Pattern::kAllReduce;
  std::vector<DType> dtypes;  // one transfer each
  int64_t elements = 0;       // approximate, per member; shards are uneven, and some are empty
  DType payload = DType::kF32;
  bool adds = false;
  bool in_place = false;
  Domaining domaining = Domaining::kOne;
};

// All cases; the same for every engine and number of ranks.
std::vector<Case> collective_cases();

using Bytes = std::vector<std::byte>;

Topology topology_of(Domaining domaining, int size);
// The expected receive buffers by member and transfer, computed from all members' buffers.
std::vector<std::vector<Bytes>> expected_results(const Case& one, int size);
// The receive buffers after running the collective.
std::vector<Bytes> run_case(Communicator& communicator, const Case& one);

// One member's part, for tests that start collectives themselves.
struct Member {
  Operation operation;
  std::vector<Bytes> send, receive;
  std::vector<Buffers> buffers;
};
Member member_of_case(const Case& one, int rank, int size);

// Runs all cases, in order, on groups of all ranks (one for each topology).
std::vector<std::vector<Bytes>> run_all_cases(World& world, const std::vector<Case>& cases);

}  // namespace strata::comm
