// Binds nodes to kernels. Nodes that are equal to a device, such as those of equal layers, share one plan:
// the device is asked once for all of them, whichever program they are in.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>

#include "device/bindings.h"

namespace strata::program {

// A node with its kernel, on the way to an instruction.
struct Bound {
  int32_t node = 0;
  uint32_t adds = 0;  // bit o: output o is added to, not overwritten
  device::BoundKernel kernel = {};
};

class Binder {
 public:
  // The target must live as long.
  explicit Binder(const device::Target& target) : target_(target) {}

  // `accumulate` as in BindRequest.
  const device::BoundKernel& bind(const graph::NodeView& view, const std::vector<bool>& accumulate);

 private:
  const device::Target& target_;
  device::PlanCache plans_;
  // By what accumulates, and the node's key.
  std::unordered_map<std::string, device::BoundKernel> kernels_;
  std::string key_;
};

}  // namespace strata::program
