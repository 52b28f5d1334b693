#pragma once

#include "device/bindings.h"

namespace strata::device {

// The plain kernels of kernels/reference, which take plain weights.
std::span<const Binding> reference_bindings();

}  // namespace strata::device
