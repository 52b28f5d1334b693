// An NVIDIA GPU through its driver.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "device/device.h"

namespace strata::device {

// The text of a module's PTX (kernels/gpu), zero-terminated; empty: this build lacks it.
std::string_view ptx_of(std::string_view module);

// The device of this number. WorldError without a driver, without such a device, or for one that is too old. Memory,
// queue and kernels are those of the returned device, which one thread uses at a time.
std::shared_ptr<Device> open_cuda_device(int ordinal);

}  // namespace strata::device
