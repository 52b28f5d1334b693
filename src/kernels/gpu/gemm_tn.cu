#include "kernels/gpu/gemm.cuh"

STRATA_GEMM_LAYOUT(tn, false, false)
