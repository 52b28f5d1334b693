// What an update reads that changes from step to step, as every device's kernels have it in memory.
#pragma once

#include <cstdint>

namespace strata {

struct UpdateScalars {
  float lr = 0;
  double beta1 = 0.9, beta2 = 0.999;  // f64: 1 - beta is rounded to f32 once, as PyTorch does
  float eps = 1e-8f;
  float bias_correction1 = 1, bias_correction2 = 1;  // 1 - beta^t
  float grad_scale = 1;                              // clip factor over token count
  int32_t skip = 0;                                  // not 0: the update leaves everything as it is
  int64_t update = 1;                                // t: updates made, this one included
};

}  // namespace strata
