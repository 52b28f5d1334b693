// The machine's memory.
#pragma once

#include <cstdint>

namespace strata {

// Bytes that programs can still take without others being pushed out, as the kernel reckons.
int64_t available_memory();

// The same, and what the kernel can still put aside on disk: more than that cannot be held at all.
int64_t holdable_memory();

}  // namespace strata
