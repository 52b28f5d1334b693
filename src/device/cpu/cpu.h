// The CPU as a device of ops: src/ops/NAME/cpu.cpp binds each to kernels/cpu (device/bind.h), and
// bindings.cpp lists them.
#pragma once

#include "device/bind.h"

namespace strata::device {

struct Cpu {};

// Defined op by op; a row of the table for one that is not does not link.
template <typename Op>
BoundKernel bind(Cpu, const Bind<Op>& node);
// For an update whose kernel can write packed layouts of its parameter: whether it can write this one.
template <typename Op>
bool writes(Cpu, const graph::View<Op>& update, const graph::Value& encoded, const hardware::DeviceSpec&);

// Like bind(), for rows with_encodings.
template <typename Op>
Encodings<Op> encodings(Cpu, const graph::View<Op>& node, const hardware::DeviceSpec& device);

}  // namespace strata::device
