// Functions that CPUs and GPUs compile: nvcc and hipcc take them with this before the return type. They are C++17, without
// allocation and exceptions.
#pragma once

#if defined(__CUDACC__) || defined(__HIP__)
#define STRATA_HOST_DEVICE __host__ __device__
#else
#define STRATA_HOST_DEVICE
#endif
