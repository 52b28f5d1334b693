// Bound kernels in a row, with what each runs on and where its operands lie. A segment of a step program,
// what experts do with a round of tokens and the run of a single op are such lists.
#pragma once

#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "device/bindings.h"

namespace strata::device {

// Where an operand's offset starts: a place in a table of addresses that whoever calls has filled.
enum class Base : int32_t {
  kAbsent = 0,  // of an optional operand that is not there: nullptr
};
struct Location {
  int64_t offset = 0;
  Base base = Base::kAbsent;
};
// By Base; the first is nullptr.
using Addresses = std::span<std::byte* const>;

// What kernels run on: an instance of each plan that needs one, else the plan itself. Equal plans share one.
class Instances {
 public:
  // The plan must outlive this.
  void* of(const void* plan, Instantiate instantiate);

 private:
  std::unordered_map<const void*, void*> made_;
  std::vector<std::shared_ptr<void>> owned_;
};

// One thread calls.
class CallList {
 public:
  // `operands`, which must outlive this: inputs, outputs and scratch, as a kernel gets them. A call without a
  // kernel only has addresses.
  void add(Kernel kernel, void* state, std::span<const Location> operands, Finish ends = nullptr);

  // Pointers to the operands, until the next call of this or run().
  std::byte* const* pointers(size_t call, Addresses addresses);
  void run(size_t call, Launch& launch, Addresses addresses);
  // The two halves of run().
  void start(size_t call, Launch& launch, Addresses addresses);
  void finish(size_t call) const;
  const void* state(size_t call) const { return calls_[call].state; }
  size_t size() const { return calls_.size(); }

 private:
  struct Call {
    Kernel run;
    void* state;
    std::span<const Location> operands;
    Finish finish;
  };
  std::vector<Call> calls_;
  std::vector<std::byte*> pointers_;  // as many as the widest call has
};

}  // namespace strata::device
