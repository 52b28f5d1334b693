// A device whose memory is the host's own: the processor.
#pragma once

#include "device/device.h"

namespace strata::device {

class HostDevice : public Device {
 public:
  using Device::Device;
  std::unique_ptr<Memory> allocate(int64_t bytes) override;
  void upload(Memory& to, int64_t offset, const void* from, int64_t bytes) override;
  void download(const Memory& from, int64_t offset, void* to, int64_t bytes) const override;
  // Kernels take the calling thread's team: it gets the device's number of compute threads.
  Launch begin_launches() override;
  // Kernels are done when they return: marks are readings of the clock.
  std::unique_ptr<Stopwatch> stopwatch(size_t marks) const override;
};

}  // namespace strata::device
