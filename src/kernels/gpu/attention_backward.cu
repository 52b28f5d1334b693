#include "kernels/gpu/attention_backward.cuh"

namespace strata::gpu {

#define STRATA_KERNEL(NAME, THREADS, ...)                                                            \
  extern "C" __global__ void __launch_bounds__(THREADS) NAME(const __grid_constant__ AttentionArgs args) { \
    __VA_ARGS__(args);                                                                               \
  }
#define STRATA_QUERIES(DIM, TILES, KEYS)                                                              \
  STRATA_KERNEL(attention_backward_queries_##DIM, 128,                                                \
                attention_backward_queries<BackwardShape<DIM, TILES, 4, KEYS>, false>)                \
  STRATA_KERNEL(attention_backward_queries_##DIM##_capped, 128,                                       \
                attention_backward_queries<BackwardShape<DIM, TILES, 4, KEYS>, true>)
#define STRATA_KEYS(NAME, DK, DV, DIM, TILES, WARPS, QUERIES)                                         \
  STRATA_KERNEL(attention_backward_##NAME##_##DIM, WARPS * 32,                                        \
                attention_backward_keys<BackwardShape<DIM, TILES, WARPS, QUERIES>, DK, DV, false>)    \
  STRATA_KERNEL(attention_backward_##NAME##_##DIM##_capped, WARPS * 32,                               \
                attention_backward_keys<BackwardShape<DIM, TILES, WARPS, QUERIES>, DK, DV, true>)

STRATA_KERNEL(attention_delta, 256, attention_delta_of)
STRATA_QUERIES(32, 2, 64)
STRATA_QUERIES(64, 2, 64)
STRATA_QUERIES(96, 2, 32)
STRATA_QUERIES(128, 2, 32)
STRATA_QUERIES(192, 1, 32)
STRATA_QUERIES(256, 1, 32)
STRATA_KEYS(keys, true, true, 32, 2, 4, 32)
STRATA_KEYS(keys, true, true, 64, 2, 4, 32)
STRATA_KEYS(keys, true, true, 96, 1, 8, 64)
STRATA_KEYS(keys, true, true, 128, 1, 8, 64)
// The sums of both do not fit the registers.
STRATA_KEYS(dk, true, false, 192, 1, 4, 32)
STRATA_KEYS(dv, false, true, 192, 1, 4, 32)
STRATA_KEYS(dk, true, false, 256, 1, 4, 32)
STRATA_KEYS(dv, false, true, 256, 1, 4, 32)

}  // namespace strata::gpu
