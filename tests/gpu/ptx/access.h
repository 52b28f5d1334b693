// Memory access of one lane, with its checks.
#pragma once

#include "ptx/warp.h"

namespace strata::gpu_tests {

enum class Access : uint8_t { kRead, kWrite, kUpdate };

struct Place {
  Region* region = nullptr;
  uint64_t offset = 0;
  std::byte* data = nullptr;
};

// Locates the bytes, checks the access and records it. Throws Violation. `bytes` is a power of two up to 32.
Place access(Warp& warp, const Instruction& i, unsigned lane, Space space, uint64_t address, unsigned bytes,
             Access kind);

// The checks of `access`, except the one for unwritten bytes, and without recording a write: for copies that
// complete later.
Place locate(Warp& warp, const Instruction& i, unsigned lane, Space space, uint64_t address, unsigned bytes);
void check_race(Warp& warp, const Instruction& i, unsigned lane, const Place& place, unsigned bytes,
                Access kind);
void check_written(Warp& warp, const Instruction& i, unsigned lane, const Place& place, unsigned bytes);

// The address in a lane's register, plus the instruction's offset.
inline uint64_t lane_address(Warp& warp, const Instruction& i, uint32_t reg, unsigned lane) {
  const uint64_t base = i.address_bytes == 8 ? warp.reg<uint64_t>(reg)[lane] : warp.reg<uint32_t>(reg)[lane];
  return base + static_cast<uint64_t>(i.immediate);
}

}  // namespace strata::gpu_tests
