// What an update reads that changes from step to step, as every device's kernels have it in memory.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace strata {

struct UpdateScalars {
  float lr = 0;
  float grad_scale = 1;  // clip factor over token count
  int32_t skip = 0;      // not 0: the update changes nothing
  int64_t update = 1;    // t: updates made, this one included
};

// What a mean of t values that began at 0 is divided by: 1 - beta^t.
inline float bias_correction(double beta, const UpdateScalars& scalars) {
  return static_cast<float>(1 - std::pow(beta, static_cast<double>(std::max<int64_t>(1, scalars.update))));
}

}  // namespace strata
