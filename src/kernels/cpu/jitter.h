// Noise on what a router reads, as ops/jitter.h defines it.
#pragma once

#include <cstdint>

namespace strata::cpu {

struct JitterShape {
  int64_t rows = 0, columns = 0;
  int64_t of_sample = 1;  // rows
  float eps = 0;
  uint32_t stream = 0;
};
void jitter(const JitterShape& shape, float* y, const float* x, const int32_t* samples);

}  // namespace strata::cpu
