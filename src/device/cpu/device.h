#pragma once

#include <memory>

#include "device/device.h"

namespace strata::device {

// This machine's processor with so many compute threads.
std::shared_ptr<Device> make_cpu_device(int threads);
// The same as data, without rates: what programs for it are compiled for.
Target cpu_target(int threads);

}  // namespace strata::device
