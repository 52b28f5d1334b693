#pragma once

#include <memory>

#include "device/device.h"

namespace strata::device {

// This machine's processor with the plain kernels.
std::shared_ptr<Device> make_reference_device(int threads);

}  // namespace strata::device
