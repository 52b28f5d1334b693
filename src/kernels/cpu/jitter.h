// Noise on the input of a router, as ops/jitter defines it.
#pragma once

#include <cstdint>

namespace strata::cpu {

struct JitterShape {
  int64_t rows = 0, columns = 0;
  float eps = 0;
  uint32_t stream = 0;
};
// places[rows, 2]: for each row, the number of its sample and its position in the sample.
void jitter(const JitterShape& shape, float* y, const float* x, const int32_t* places);
// Fills places for `samples` samples of `rows` rows each.
void sample_places(int64_t samples, int64_t rows, int32_t* places, const int32_t* numbers);

}  // namespace strata::cpu
