// Measures what this processor does: GEMM peak and bandwidths. Rates are those
// of the best repetition: a shared machine only ever makes a repetition slower.
#pragma once

#include <functional>

#include "hardware/device_spec.h"
#include "tensor/dtype.h"

namespace strata::cpu {

// The fastest of a few oneDNN GEMMs with packed weights, found by a short trial: the yardstick of a training
// step, to be interleaved with it. Where oneDNN has no bf16 the engine that has.
struct PeakGemm {
  double flops = 0;           // of one repetition
  std::function<void()> run;  // one repetition; owns its buffers
};
PeakGemm peak_gemm(DType dtype);

// What is known without measuring, with the library versions that the cache key needs.
hardware::DeviceSpec describe_device(int threads);

// Measures within about `seconds` (every figure at least once), on `threads` compute threads; those of the
// calling thread are as before afterwards.
hardware::DeviceSpec measure_device(int threads, double seconds);

// Seconds of a triad (a = b + s c) by the compute threads over three arrays of together `bytes`, which stay
// allocated between calls.
std::function<double()> triad_loop(int64_t bytes);

// Seconds that the compute threads take to read so many bytes of memory and do nothing with them but add:
// what a token can at best cost that must read them. Each call reads all of them once; the bytes stay
// allocated between calls.
std::function<double()> reading_loop(int64_t bytes);

}  // namespace strata::cpu
