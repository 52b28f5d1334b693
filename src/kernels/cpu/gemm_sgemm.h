// fp32 GEMMs by oneDNN's BLAS interface, which takes plain operands and packs them internally.
#pragma once

#include "kernels/cpu/gemm.h"

namespace strata::cpu::detail {

// Whether the library should compute this GEMM (docs/benchmarks.md). It splits small outputs badly, so never
// small weight gradients; and with AVX-512 it loses up to a third if all row strides are multiples of 2 KB,
// as in most models.
bool prefers_sgemm(const GemmSpec& spec, const hardware::DeviceSpec& device);

// spec: fp32 activations and result, strides filled in.
void run_sgemm(const GemmSpec& spec, const GemmArgs& args);

}  // namespace strata::cpu::detail
