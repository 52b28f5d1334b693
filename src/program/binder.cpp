#include "program/binder.h"

#include "device/node_key.h"

namespace strata::program {

const device::BoundKernel& Binder::bind(const graph::NodeView& view, const std::vector<bool>& accumulate) {
  key_.clear();
  for (const bool adds : accumulate) key_ += adds ? '+' : '=';
  device::append_key(key_, view);
  const auto [slot, is_new] = kernels_.try_emplace(key_);
  if (is_new) {
    const device::Binding& row = device::find_binding(target_.bindings, *view.node.op);
    slot->second = row.bind({view, accumulate, plans_, target_.spec});
  }
  return slot->second;
}

}  // namespace strata::program
