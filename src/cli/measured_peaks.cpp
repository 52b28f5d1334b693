#include "cli/measured_peaks.h"

#include "base/parallel.h"
#include "kernels/cpu/measure.h"
#include "program/cpu_probes.h"

namespace strata::cli {

hardware::DeviceSpec describe_machine() {
  hardware::DeviceSpec machine = cpu::describe_device(compute_threads());
  hardware::load_cached_device(machine);
  return machine;
}

hardware::DeviceSpec measure_machine() {
  return program::measured_cpu(posix_file_system(), compute_threads(), true);
}

}  // namespace strata::cli
