// What work should cost on a device: by its measured rates, else by peak and bandwidth.
#pragma once

#include <string_view>

#include "hardware/device_spec.h"

namespace strata::hardware {

// Bytes that the last-level cache serves as measured, else its size, or that of the caches below it.
int64_t cache_bytes(const DeviceSpec& device);

struct Work {
  double flops = 0;
  double bytes = 0;
  double streamed_bytes = 0;  // the part of `bytes` that is left out of the arithmetic intensity
  bool adds = false;          // to an accumulator that holds something; `bytes` has its reading
};

// Seconds of one node: op rates at its arithmetic intensity (interpolated between the probes, which add where it
// does if the op was measured so), never faster
// than the bandwidth allows; for an op that was not measured, the device's best GEMM and bandwidths. Never less
// than the host takes to start a kernel.
double expected_seconds(const DeviceSpec& device, std::string_view op, std::string_view dtype,
                        const Work& work, double cold_share);

}  // namespace strata::hardware
