#pragma once

#include "device/bindings.h"

namespace strata::device {

// The CPU's table, one row an op.
std::span<const Binding> cpu_bindings();

}  // namespace strata::device
