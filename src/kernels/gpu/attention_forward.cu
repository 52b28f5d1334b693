#include "kernels/gpu/attention_forward.cuh"

namespace strata::gpu {

#define STRATA_FORWARD(DIM, TILES, WARPS, KEYS)                                                                                    \
  extern "C" __global__ void __launch_bounds__(WARPS * 32) attention_forward_##DIM(const __grid_constant__ AttentionArgs args) {          \
    attention_forward<DIM, TILES, WARPS, KEYS, false>(args);                                                                       \
  }                                                                                                                                \
  extern "C" __global__ void __launch_bounds__(WARPS * 32) attention_forward_##DIM##_capped(const __grid_constant__ AttentionArgs args) { \
    attention_forward<DIM, TILES, WARPS, KEYS, true>(args);                                                                        \
  }
STRATA_FORWARD(32, 2, 4, 64)
STRATA_FORWARD(64, 2, 4, 64)
STRATA_FORWARD(96, 2, 4, 64)
STRATA_FORWARD(128, 2, 4, 64)
STRATA_FORWARD(192, 1, 4, 64)
STRATA_FORWARD(256, 1, 4, 64)

}  // namespace strata::gpu
