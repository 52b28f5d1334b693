// Measures what this processor does: GEMM peak, bandwidths and the rates of kernel families. Rates are those
// of the best repetition: a shared machine only ever makes a repetition slower.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "hardware/device_spec.h"
#include "tensor/dtype.h"

namespace strata::cpu {

// One kernel family at one typical size. `run` is one repetition and owns its buffers.
struct FamilyProbe {
  std::string family;
  DType dtype = DType::kF32;
  double flops =
      0.0;  // of one repetition; the larger of the two shares of the roofline gives the rate that binds
  double bytes = 0.0;
  std::function<void()> run;
};

// The families of this folder's GEMMs: "gemm_forward", "gemm_input_grad", "gemm_weight_grad" and
// "linear_cross_entropy".
std::vector<FamilyProbe> gemm_probes(DType dtype);

// The fastest of a few oneDNN GEMMs with packed weights, found by a short trial: the yardstick of a training
// step, to be interleaved with it. Where oneDNN has no bf16 the engine that has.
FamilyProbe peak_gemm_probe(DType dtype);

// What is known without measuring, with the library versions that the cache key needs.
hardware::DeviceSpec describe_device(int threads);

// Measures within about `seconds` (every figure at least once), on `threads` compute threads; those of the
// calling thread are as before afterwards.
hardware::DeviceSpec measure_device(int threads, double seconds, std::span<const FamilyProbe> probes);

// The figures of this machine from the cache, else measured now and kept. The probes are made only in that
// case.
hardware::DeviceSpec measured_device(FileSystem& files, int threads, double seconds,
                                     const std::function<std::vector<FamilyProbe>()>& probes);

}  // namespace strata::cpu
