#include "device/cpu/device.h"

#include "device/cpu/bindings.h"
#include "device/cpu/probes.h"
#include "kernels/cpu/measure.h"

namespace strata::device {

hardware::DeviceSpec CpuDevice::measured(FileSystem& files, bool fresh) const {
  return measured_cpu(files, spec().threads, fresh);
}
hardware::DeviceSpec CpuDevice::measure_peaks(double seconds) const {
  return cpu::measure_device(spec().threads, seconds);
}
std::vector<hardware::FamilyRate> CpuDevice::measure_ops(double seconds, std::string_view family) const {
  return device::measure_ops(spec(), seconds, family);
}
PeakProduct CpuDevice::peak_product(DType dtype) const {
  cpu::PeakGemm gemm = cpu::peak_gemm(dtype);
  return {gemm.flops, std::move(gemm.run)};
}
std::function<double()> CpuDevice::triad_loop(int64_t bytes) const {
  return cpu::triad_loop(bytes);
}
std::function<double()> CpuDevice::reading_loop(int64_t bytes) const {
  return cpu::reading_loop(bytes);
}

Target cpu_target(int threads) {
  return {cpu::describe_device(threads), cpu_bindings()};
}

std::shared_ptr<Device> make_cpu_device(int threads) {
  return std::make_shared<CpuDevice>(cpu_target(threads));
}

}  // namespace strata::device
