// The CPU as a device of ops: src/ops/NAME/cpu.cpp binds each to kernels/cpu (device/bind.h), and table.cpp
// lists them.
#pragma once

#include "device/bind.h"

namespace strata::device {

struct Cpu {};

// Defined op by op; a row of the table for one that is not does not link.
template <typename Op>
BoundKernel bind(Cpu, const Bind<Op>& node);

}  // namespace strata::device
