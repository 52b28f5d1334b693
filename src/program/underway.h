// Work that overlaps a program: collectives and messages that were started and are not waited for yet.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "comm/communicator.h"
#include "device/call_list.h"

namespace strata::program {

// The calls of one instruction since the last reset, together.
struct Timing {
  uint64_t calls = 0;
  double seconds = 0;
};

// One of them.
struct Started {
  enum class What : uint8_t {
    kInstruction,  // of the segment that runs
    kEarly,        // of the update that follows
    kMessage,      // between ranks of a pipeline
  } what = What::kInstruction;
  comm::Communicator* group = nullptr;
  comm::Ticket ticket = {};
  const device::CallList* kernels = nullptr;  // of what a kernel has started: its list; it has no group
  Timing* timing = nullptr;                   // the timing that a wait for it adds to; nullptr: none
  size_t index = 0;    // of the instruction in its list, or of the message in the program
  size_t program = 0;  // kMessage, and so are those below
  int32_t micro_batch = 0;
  int32_t slot = 0;
};

// One thread calls.
class Underway {
 public:
  Underway() { started_.reserve(128); }
  void add(const Started& started) { started_.push_back(started); }

  // Waits for those that `wanted` picks, in the order in which they were started.
  template <typename Wanted>
  void wait_for(const Wanted& wanted) {
    std::erase_if(started_, [&](const Started& one) {
      if (!wanted(one)) return false;
      const double begin = monotonic_seconds();
      one.kernels != nullptr ? one.kernels->finish(one.index) : one.group->wait(one.ticket);
      const double seconds = monotonic_seconds() - begin;
      if (one.timing != nullptr) one.timing->seconds += seconds;
      seconds_waited_ += seconds;
      return true;
    });
  }
  void wait_for(Started::What what) {
    if (!started_.empty()) wait_for([&](const Started& one) { return one.what == what; });
  }
  // For an instruction of the segment that runs. The plan relies on the queue's order: a wait for one waits
  // for all that were started before it, on any group of ranks.
  void wait_through(size_t instruction) {
    wait_for([&](const Started& one) {
      return one.what == Started::What::kInstruction && one.index <= instruction;
    });
  }

  // For another start on an instance of a kernel.
  void wait_for_instance(const void* instance) {
    wait_for([&](const Started& one) {
      return one.kernels != nullptr && one.kernels->state(one.index) == instance;
    });
  }

  // The update has reached an instruction: moves it to the running segment if it was started early.
  bool take_early(size_t instruction) {
    for (Started& one : started_) {
      if (one.what != Started::What::kEarly || one.index != instruction) continue;
      one.what = Started::What::kInstruction;
      return true;
    }
    return false;
  }
  bool has(Started::What what) const {
    return std::any_of(started_.begin(), started_.end(),
                       [&](const Started& one) { return one.what == what; });
  }
  bool empty() const { return started_.empty(); }
  // Since it was made.
  double seconds_waited() const { return seconds_waited_; }

 private:
  std::vector<Started> started_;
  double seconds_waited_ = 0;
};

}  // namespace strata::program
