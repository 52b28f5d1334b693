#pragma once

#include "device/bindings.h"

namespace strata::device {

// The plain kernels of kernels/reference, which take weights as they are.
std::span<const Binding> reference_bindings();

}  // namespace strata::device
