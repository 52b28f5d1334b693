// fp32 GEMMs by oneDNN's BLAS interface: plain operands, packed on the fly inside the library.
#pragma once

#include "kernels/cpu/gemm.h"

namespace strata::cpu::detail {

// Whether the library's GEMM should compute this (docs/benchmarks.md): it splits few output tiles badly, so
// never small weight gradients; and with AVX-512 it loses up to a third where all rows lie a multiple of 2 KB
// apart, as in most models.
bool prefers_sgemm(const GemmSpec& spec, const hardware::DeviceSpec& device);

// spec: activations and result fp32, strides filled in.
void run_sgemm(const GemmSpec& spec, const GemmArgs& args);

}  // namespace strata::cpu::detail
