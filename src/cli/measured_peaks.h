// The limits of this machine, as its kernels measure them.
#pragma once

#include "hardware/device_spec.h"

namespace strata::cli {

// This machine with the rates of an earlier measurement, if any.
hardware::DeviceSpec describe_machine();

// Measures for some seconds and stores the rates for later runs.
hardware::DeviceSpec measure_machine();

}  // namespace strata::cli
