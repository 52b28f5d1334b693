// The machine's memory.
#pragma once

#include <cstdint>

namespace strata {

// Bytes that programs can still take without others being pushed out, as the kernel reckons.
int64_t available_memory();

}  // namespace strata
