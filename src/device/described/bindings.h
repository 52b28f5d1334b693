// Devices that are only described: a row for each op has the memory that its kernel needs, so that programs are
// compiled, planned and priced for a device that this machine lacks. They cannot run. The table of a real device
// takes its place once there is one.
#pragma once

#include "device/bindings.h"

namespace strata::device {

// What kernels of accelerators need: fp32 weights are multiplied as bf16 copies where activations are bf16, one copy
// for all GEMMs, which the update writes; attention backward sums the gradient of queries in fp32
// (FlashAttention-2, arXiv 2307.08691, section 3.2); sums over rows are made from partial ones.
std::span<const Binding> described_bindings();

// A device of this description: programs are compiled for it as for any other.
Target described_target(hardware::DeviceSpec spec);

}  // namespace strata::device
