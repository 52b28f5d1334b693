// The table of GPUs: plain C++, so that programs are compiled and planned for a GPU anywhere.
#pragma once

#include "device/bindings.h"

namespace strata::device {

// The ops that have kernels.
std::span<const Binding> gpu_kernels();
// All ops: those without kernels are refused by name, by a ConfigError.
std::span<const Binding> gpu_bindings();

}  // namespace strata::device
