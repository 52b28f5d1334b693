// Measures GEMM peak and bandwidths of this processor. Rates are those of the best repetition, because load
// on a shared machine can only slow a repetition down.
#pragma once

#include <functional>

#include "hardware/device_spec.h"
#include "tensor/dtype.h"

namespace strata::cpu {

// The fastest of a few oneDNN GEMMs with packed weights, found by a short trial: the yardstick for a training
// step, to be interleaved with it. If oneDNN has no bf16, uses the engine that has it.
struct PeakGemm {
  double flops = 0;           // of one repetition
  std::function<void()> run;  // one repetition; owns its buffers
};
PeakGemm peak_gemm(DType dtype);

// Facts known without measuring, with the library versions that the cache key needs.
hardware::DeviceSpec describe_device(int threads);

// The instruction sets that this build has kernels for.
hardware::IsaFlags compiled_instruction_sets();

// Measures for about `seconds` (each figure at least once) on `threads` compute threads. Restores the calling
// thread's number of compute threads.
hardware::DeviceSpec measure_device(int threads, double seconds);

// Returns the seconds of a triad (a = b + s c) by the compute threads over three arrays of `bytes` in total.
// The arrays stay allocated between calls.
std::function<double()> triad_loop(int64_t bytes);

// Returns the seconds that the compute threads take to read `bytes` of memory and only add them up: the least
// time of a token that must read them. Each call reads all bytes once; they stay allocated between calls.
std::function<double()> reading_loop(int64_t bytes);

}  // namespace strata::cpu
