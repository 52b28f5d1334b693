// Steps that all ranks of a run perform together, with common errors.
#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <vector>

#include "base/function_ref.h"
#include "comm/communicator.h"

namespace strata::checkpoint {

class Together {
 public:
  // A single rank.
  Together() = default;
  // All members of a group call the same functions in the same order.
  Together(comm::Communicator& communicator)
      : rank_(communicator.rank()), size_(communicator.size()), communicator_(&communicator) {}

  int rank() const { return rank_; }
  int size() const { return size_; }
  bool alone() const { return size() == 1; }
  bool is_first() const { return rank() == 0; }
  comm::Communicator& communicator() const { return *communicator_; }

  // Waits for all ranks. If any of them has an error, all throw that of the lowest such rank, of the same
  // kind and with the rank's number (unless all have one).
  void agree(const std::exception_ptr& mine);
  // Calls `act` on all ranks, then agree() with its error.
  void all(FunctionRef<void()> act);
  // Calls `act` on rank 0 only, then agree() with its error.
  void first(FunctionRef<void()> act);

  // Broadcasts the text of rank 0.
  std::string of_first(const std::string& text);
  // Gathers the values of all ranks on rank 0, which must know their counts; empty on the others.
  std::vector<std::vector<uint64_t>> gather(const std::vector<uint64_t>& mine,
                                            const std::vector<int64_t>& counts);

 private:
  int rank_ = 0, size_ = 1;
  comm::Communicator* communicator_ = nullptr;  // null for a single rank
};

}  // namespace strata::checkpoint
