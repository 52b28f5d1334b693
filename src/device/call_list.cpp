#include "device/call_list.h"

#include <algorithm>

namespace strata::device {

void* Instances::of(const void* plan, Instantiate instantiate) {
  if (instantiate == nullptr) return const_cast<void*>(plan);
  void*& made = made_[plan];
  if (made == nullptr) {
    owned_.push_back(instantiate(plan));
    made = owned_.back().get();
  }
  return made;
}

void CallList::add(Kernel kernel, void* state, std::span<const Location> operands, Finish ends) {
  calls_.push_back({kernel, state, operands, ends});
  pointers_.resize(std::max(pointers_.size(), operands.size()));
}

std::byte* const* CallList::pointers(size_t call, Addresses addresses) {
  std::byte** to = pointers_.data();
  for (const Location& operand : calls_[call].operands) {
    std::byte* const base = addresses[static_cast<size_t>(operand.base)];
    *to++ = base == nullptr ? nullptr : base + operand.offset;
  }
  return pointers_.data();
}

void CallList::start(size_t call, Launch& launch, Addresses addresses) {
  calls_[call].run(launch, calls_[call].state, pointers(call, addresses));
}

void CallList::finish(size_t call) const {
  if (calls_[call].finish != nullptr) calls_[call].finish(calls_[call].state);
}

void CallList::run(size_t call, Launch& launch, Addresses addresses) {
  start(call, launch, addresses);
  finish(call);
}

}  // namespace strata::device
