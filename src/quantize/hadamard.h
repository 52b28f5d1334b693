// The random Hadamard transform of 16 elements that NVFP4 recipes apply to both operands of a weight gradient, along
// the dimension that the matmul sums over (NVIDIA 2025, "Pretraining Large Language Models with NVFP4", section 4.2).
#pragma once

#include <cstdint>

#include "base/random.h"

namespace strata::quantize {

inline constexpr int64_t kHadamard = 16;

// Bit i set: element i changes its sign before the transform. Both operands of a matmul take the same.
struct HadamardSigns {
  uint16_t bits = 0;
};
HadamardSigns hadamard_signs(RandomKey key, uint32_t step);

// Replaces x, 16 numbers `pitch` apart, by H (d ∘ x) / 4, where d are the signs and H is Sylvester's matrix of ±1. In
// fp32, by four rounds of sums and differences of elements 8, 4, 2 and 1 apart, and then a quarter of them. The
// transform is orthogonal, so that the matmul of two transformed operands is that of the plain ones.
void hadamard_16(float* x, int64_t pitch, HadamardSigns signs);

}  // namespace strata::quantize
