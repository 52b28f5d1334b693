#include "kernels/gpu/gemm.cuh"

STRATA_GEMM_LAYOUT(nn, true, false)
