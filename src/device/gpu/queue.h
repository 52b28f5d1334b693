// The queue of a GPU, to which Launch::queue points: work starts in the order in which it is given and ends later.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/bindings.h"
#include "kernels/gpu/launch.h"

namespace strata::device {

class GpuQueue {
 public:
  virtual ~GpuQueue() = default;
  // `args`: the kernel's only argument, copied before this returns. `instruction`: as in Launch. WorldError if the driver
  // refuses.
  virtual void start(const gpu::KernelLaunch& kernel, const void* args, size_t bytes,
                     const char* instruction) = 0;
  // Between places of the device's memory that do not overlap.
  virtual void copy(void* to, const void* from, int64_t bytes) = 0;
  virtual void clear(void* at, int64_t bytes) = 0;
  // From the host's memory, which is free again when this returns: for constants before the first step, since it waits.
  virtual void upload(void* to, const void* from, int64_t bytes) = 0;
};

inline GpuQueue& gpu_queue(const Launch& launch) {
  return *static_cast<GpuQueue*>(launch.queue);
}

// Nothing starts for an empty grid: a launch of no blocks is an error of the driver.
template <typename Args>
void start(const Launch& launch, const gpu::KernelLaunch& kernel, const Args& args) {
  if (kernel.grid_x > 0 && kernel.grid_y > 0 && kernel.grid_z > 0)
    gpu_queue(launch).start(kernel, &args, sizeof args, launch.instruction);
}

}  // namespace strata::device
