// Plans the memory of a program. Values whose lifetimes overlap do not; the others may share memory.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace strata::program {

// A buffer wanted from the first to the last instruction of its life, both included.
struct Lifetime {
  int64_t bytes = 0;
  int32_t first = 0;
  int32_t last = 0;
};

struct Layout {
  std::vector<int64_t> offsets;  // one per lifetime, aligned to kBufferAlignment
  int64_t bytes = 0;             // the peak
  int32_t peak_at = 0;           // the instruction at which most bytes are alive
  int64_t alive_at_peak = 0;     // their sum: bytes − alive_at_peak is lost to fragmentation
};

// The most that is alive at one instruction, the first such one: no layout can do with less.
struct Alive {
  int64_t bytes = 0;
  int32_t at = 0;
};
Alive most_alive(std::span<const Lifetime> lifetimes);

// Greedy best fit, largest buffer first (Pisarchyk and Lee 2020), against first-come order; the smaller one
// is taken. Takes n log n time as long as the bytes in use at any time form few ranges.
Layout plan_memory(std::span<const Lifetime> lifetimes);

}  // namespace strata::program
