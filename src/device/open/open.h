// The only way to a device for everybody but devices and their tests.
#pragma once

#include <memory>

#include "device/device.h"

namespace strata::device {

enum class Kind : uint8_t {
  kCpu,        // this machine's processor
  kReference,  // that processor with the plain kernels
};

// The device of this number among those of its kind, which a host counts from 0. `threads`: compute threads
// of a processor; 0: those that the process has.
std::shared_ptr<Device> open(Kind kind, int ordinal = 0, int threads = 0);

// What programs for a device of this description are compiled with: the table of its kind, or that of described
// devices where this build has none.
Target target_for(hardware::DeviceSpec spec);

// The instruction sets that this build has kernels for; a processor runs those that it supports.
hardware::IsaFlags compiled_instruction_sets();

}  // namespace strata::device
