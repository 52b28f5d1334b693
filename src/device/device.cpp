#include "device/device.h"

#include "base/error.h"

namespace strata::device {
namespace {

[[noreturn]] void cannot_be_measured(const Device& device) {
  throw InternalError("the device {} cannot be measured", device.spec().name);
}

}  // namespace

hardware::DeviceSpec Device::measured(FileSystem&, bool) const {
  cannot_be_measured(*this);
}
hardware::DeviceSpec Device::measure_peaks(double) const {
  cannot_be_measured(*this);
}
std::vector<hardware::FamilyRate> Device::measure_ops(double, std::string_view) const {
  cannot_be_measured(*this);
}
PeakProduct Device::peak_product(DType) const {
  cannot_be_measured(*this);
}
std::function<double()> Device::triad_loop(int64_t) const {
  cannot_be_measured(*this);
}
std::function<double()> Device::reading_loop(int64_t) const {
  cannot_be_measured(*this);
}

}  // namespace strata::device
