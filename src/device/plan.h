// Holds the decisions of a binding: the immutable plan of a BoundKernel.
#pragma once

#include <utility>

#include "device/bindings.h"

namespace strata::device {

template <typename Plan>
const Plan& plan_of(const void* plan) {
  return *static_cast<const Plan*>(plan);
}

// For a kernel that runs on an instance of its plan.
template <typename Instance>
Instance& instance_of(void* instance) {
  return *static_cast<Instance*>(instance);
}
template <typename Instance, typename Plan>
std::shared_ptr<void> instantiate(const void* plan) {
  return std::make_shared<Instance>(plan_of<Plan>(plan));
}

template <typename Plan>
BoundKernel bound(Kernel run, Plan plan, int64_t scratch_bytes = 0) {
  return {run, std::make_shared<const Plan>(std::move(plan)), scratch_bytes};
}

}  // namespace strata::device
