#include "cli/measured_peaks.h"

#include "base/parallel.h"
#include "device/cpu/probes.h"
#include "kernels/cpu/measure.h"

namespace strata::cli {

hardware::DeviceSpec describe_machine() {
  hardware::DeviceSpec machine = cpu::describe_device(compute_threads());
  hardware::load_cached_device(machine);
  return machine;
}

hardware::DeviceSpec measure_machine() {
  return device::measured_cpu(posix_file_system(), compute_threads(), true);
}

}  // namespace strata::cli
