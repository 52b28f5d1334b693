#include "kernels/gpu/attention_backward.cuh"

namespace strata::gpu {

// MIN: blocks per multiprocessor of sm_90, which bounds the registers per thread.
#define STRATA_KERNEL(NAME, MIN, ...)                                                                       \
  extern "C" __global__ void __launch_bounds__(128, MIN) NAME(const __grid_constant__ AttentionArgs args) { \
    __VA_ARGS__(args);                                                                                      \
  }
#define STRATA_QUERIES(DIM, TILES, KEYS, MIN)                                          \
  STRATA_KERNEL(attention_backward_queries_##DIM, MIN,                                 \
                attention_backward_queries<BackwardShape<DIM, TILES, 4, KEYS>, false>) \
  STRATA_KERNEL(attention_backward_queries_##DIM##_capped, 1,                          \
                attention_backward_queries<BackwardShape<DIM, TILES, 4, KEYS>, true>)
// CAPPED: queries of the kernel with a cap, which takes registers.
#define STRATA_KEYS(NAME, DK, DV, DIM, TILES, QUERIES, MIN, CAPPED)                            \
  STRATA_KERNEL(attention_backward_##NAME##_##DIM, MIN,                                        \
                attention_backward_keys<BackwardShape<DIM, TILES, 4, QUERIES>, DK, DV, false>) \
  STRATA_KERNEL(attention_backward_##NAME##_##DIM##_capped, 1,                                 \
                attention_backward_keys<BackwardShape<DIM, TILES, 4, CAPPED>, DK, DV, true>)

extern "C" __global__ void __launch_bounds__(256)
    attention_delta(const __grid_constant__ AttentionArgs args) {
  attention_delta_of(args);
}
STRATA_QUERIES(32, 2, 64, 2)
STRATA_QUERIES(64, 2, 64, 2)
STRATA_QUERIES(96, 2, 32, 2)
STRATA_QUERIES(128, 2, 32, 2)
STRATA_QUERIES(192, 1, 32, 1)
STRATA_QUERIES(256, 1, 32, 1)
STRATA_KEYS(keys, true, true, 32, 2, 32, 2, 32)
STRATA_KEYS(keys, true, true, 64, 1, 64, 3, 64)
STRATA_KEYS(keys, true, true, 96, 1, 64, 2, 64)
STRATA_KEYS(keys, true, true, 128, 1, 64, 2, 32)
// The sums of both do not fit in the registers.
STRATA_KEYS(dk, true, false, 192, 1, 32, 1, 32)
STRATA_KEYS(dv, false, true, 192, 1, 32, 1, 32)
STRATA_KEYS(dk, true, false, 256, 1, 32, 1, 32)
STRATA_KEYS(dv, false, true, 256, 1, 32, 1, 32)

}  // namespace strata::gpu
