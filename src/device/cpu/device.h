#pragma once

#include <memory>

#include "device/host_device.h"

namespace strata::device {

// This machine's processor.
class CpuDevice : public HostDevice {
 public:
  using HostDevice::HostDevice;
  hardware::DeviceSpec measured(FileSystem& files, bool fresh) const override;
  hardware::DeviceSpec measure_peaks(double seconds) const override;
  std::vector<hardware::FamilyRate> measure_ops(double seconds, std::string_view family) const override;
  PeakProduct peak_product(DType dtype) const override;
  std::function<double()> triad_loop(int64_t bytes) const override;
  std::function<double()> reading_loop(int64_t bytes) const override;
};

// This processor with `threads` compute threads, and its own kernels.
std::shared_ptr<Device> make_cpu_device(int threads);
// The same device as data, without rates: the target that its programs are compiled for.
Target cpu_target(int threads);

}  // namespace strata::device
