// The processor's description of itself by CPUID, which needs no file. Empty on other architectures than x86-64.
#pragma once

#include <cstdint>
#include <string>

#include "hardware/device_spec.h"

namespace strata::hardware {

// "AMD EPYC (family 25 model 17 stepping 1)", like /proc/cpuinfo. A virtual machine may hide the model's name;
// family and model still distinguish processors.
std::string cpuid_name();

// Instruction sets that processor and operating system support. Kernels select theirs by CPUID too, so both
// always agree.
IsaFlags cpuid_isa();

// Bytes of the data cache of this level; 0 if not known.
int64_t cpuid_cache_bytes(int level);

}  // namespace strata::hardware
