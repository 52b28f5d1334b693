// Runs the blocks of a launch.
#pragma once

#include <cstdint>

#include "ptx/warp.h"

namespace strata::gpu_tests {

// A small random generator: determines the order of blocks, warps and paths.
class Dice {
 public:
  explicit Dice(uint64_t seed) : state_(seed * 0x9e37'79b9'7f4a'7c15 + 0x1234'5678'9abc'def1) {}
  uint32_t below(uint32_t count) {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return static_cast<uint32_t>((state_ >> 32) * count >> 32);
  }

 private:
  uint64_t state_;
};

// Runs one block after another, in random order. Throws Violation.
void run_grid(Launch& launch, Dice& dice);

}  // namespace strata::gpu_tests
