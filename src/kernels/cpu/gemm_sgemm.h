// fp32 GEMMs by oneDNN's BLAS interface: plain operands, packed on the fly inside the library.
#pragma once

#include "kernels/cpu/gemm.h"

namespace strata::cpu::detail {

// Whether the library's GEMM should compute this: without AVX-512 it is the faster one for all but small
// weight gradients, whose few output tiles it splits badly (docs/benchmarks.md).
bool prefers_sgemm(const GemmSpec& spec, const hardware::DeviceSpec& device);

// spec: activations and result fp32, strides filled in.
void run_sgemm(const GemmSpec& spec, const GemmArgs& args);

}  // namespace strata::cpu::detail
