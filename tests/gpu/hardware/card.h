// The first GPU, for tests on hardware.
#pragma once

#include "device/cuda/driver.h"

namespace strata::gpu_tests {

namespace cuda = strata::cuda;

// Opened once; WorldError without a driver or GPU.
const cuda::Card& card();

}  // namespace strata::gpu_tests
