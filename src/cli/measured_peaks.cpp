#include "cli/measured_peaks.h"

#include "device/open/open.h"

namespace strata::cli {

hardware::DeviceSpec describe_machine() {
  hardware::DeviceSpec machine = device::open(device::Kind::kCpu)->spec();
  hardware::load_cached_device(machine);
  return machine;
}

hardware::DeviceSpec measure_machine() {
  return device::open(device::Kind::kCpu)->measured(posix_file_system(), true);
}

}  // namespace strata::cli
