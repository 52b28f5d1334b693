// The triad of the STREAM benchmark (McCalpin): a[i] = b[i] + s · c[i]. Internal to measure.
#pragma once

#include <cstdint>

namespace strata::cpu::detail {

void triad(float* a, const float* b, const float* c, float s, int64_t n);

}  // namespace strata::cpu::detail
