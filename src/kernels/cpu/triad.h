// Loops that only use memory. Internal to measure.
#pragma once

#include <cstdint>

namespace strata::cpu::detail {

// The triad of the STREAM benchmark (McCalpin): a[i] = b[i] + s · c[i].
void triad(float* a, const float* b, const float* c, float s, int64_t n);

// Reads n floats at full bandwidth and returns their sum.
float sum_of(const float* a, int64_t n);

}  // namespace strata::cpu::detail
