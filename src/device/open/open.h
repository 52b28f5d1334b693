// The only way to a device for everybody but devices and their tests.
#pragma once

#include <memory>

#include "device/device.h"

namespace strata::device {

enum class Kind : uint8_t {
  kCpu,        // this machine's processor
  kCuda,       // an NVIDIA GPU
  kReference,  // this machine's processor with the plain kernels
};

// The device of this number among those of its kind, which a host counts from 0. `threads`: compute threads
// of a processor; 0: those that the process has. WorldError for a GPU that is not there or cannot be used, and in a build
// without GPU code.
std::shared_ptr<Device> open(Kind kind, int ordinal = 0, int threads = 0);

// What programs for a device of this description are compiled with: the table of its kind, or that of described
// devices where this build has none.
Target target_for(hardware::DeviceSpec spec);
// The same for runs whose device.kind is cuda: with the kernels of GPUs; described are only the ops that they lack.
Target gpu_target_for(hardware::DeviceSpec spec);

// The instruction sets that this build has kernels for; a processor runs those that it supports.
hardware::IsaFlags compiled_instruction_sets();

}  // namespace strata::device
