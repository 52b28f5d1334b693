#include "kernels/gpu/gemm.cuh"

STRATA_GEMM_LAYOUT(nt, true, true)
