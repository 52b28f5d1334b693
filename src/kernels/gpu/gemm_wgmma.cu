#include "kernels/gpu/gemm_wgmma.cuh"

STRATA_WGMMA_LAYOUT(nt, true, true)
STRATA_WGMMA_LAYOUT(nn, true, false)
STRATA_WGMMA_LAYOUT(tn, false, false)
