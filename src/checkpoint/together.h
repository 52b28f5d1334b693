// What all ranks of a run do together, and fail at together.
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
  // One rank alone.
  Together() = default;
  // All members of a group call the same functions in the same order.
  Together(comm::Communicator& communicator)
      : rank_(communicator.rank()), size_(communicator.size()), communicator_(&communicator) {}

  int rank() const { return rank_; }
  int size() const { return size_; }
  bool alone() const { return size() == 1; }
  bool is_first() const { return rank() == 0; }
  comm::Communicator& communicator() const { return *communicator_; }

  // Returns when all have come here. Where any brought an error, all throw that of the lowest of these ranks:
  // of its kind, with the rank named.
  void agree(const std::exception_ptr& mine);
  // Acts, and agrees about what came of it.
  void all(FunctionRef<void()> act);
  // The same of rank 0 alone.
  void first(FunctionRef<void()> act);

  // What rank 0 has.
  std::string of_first(const std::string& text);
  // What the others have, on rank 0, which knows how many each sends; empty elsewhere.
  std::vector<std::vector<uint64_t>> gather(const std::vector<uint64_t>& mine,
                                            const std::vector<int64_t>& counts);

 private:
  int rank_ = 0, size_ = 1;
  comm::Communicator* communicator_ = nullptr;  // only where there are others
};

}  // namespace strata::checkpoint
