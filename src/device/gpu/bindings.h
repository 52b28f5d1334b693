// The table of GPUs: plain C++, so that programs are compiled and planned for a GPU anywhere. Ops without a row are
// refused by name.
#pragma once

#include "device/bindings.h"

namespace strata::device {

std::span<const Binding> gpu_bindings();

}  // namespace strata::device
