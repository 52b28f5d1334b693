#include "kernels/gpu/attention_forward.cuh"

namespace strata::gpu {

// MIN: blocks per multiprocessor of sm_90, which bounds the registers per thread.
// CAPPED: keys of the kernel with a cap, which takes registers.
#define STRATA_FORWARD(DIM, TILES, KEYS, MIN, CAPPED)                                \
  extern "C" __global__ void __launch_bounds__(128, MIN)                             \
      attention_forward_##DIM(const __grid_constant__ AttentionArgs args) {          \
    attention_forward<DIM, TILES, 4, KEYS, false>(args);                             \
  }                                                                                  \
  extern "C" __global__ void __launch_bounds__(128)                                  \
      attention_forward_##DIM##_capped(const __grid_constant__ AttentionArgs args) { \
    attention_forward<DIM, TILES, 4, CAPPED, true>(args);                            \
  }
STRATA_FORWARD(32, 2, 64, 1, 64)
STRATA_FORWARD(64, 2, 128, 2, 64)
STRATA_FORWARD(96, 2, 64, 1, 32)
STRATA_FORWARD(128, 2, 64, 1, 32)
STRATA_FORWARD(192, 1, 64, 1, 64)
STRATA_FORWARD(256, 1, 64, 1, 64)

}  // namespace strata::gpu
