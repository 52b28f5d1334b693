#include "cli/measured_peaks.h"

#include "base/parallel.h"
#include "kernels/cpu/measure.h"

namespace strata::cli {

hardware::DeviceSpec describe_machine() {
  hardware::DeviceSpec machine = cpu::describe_device(compute_threads());
  hardware::load_cached_device(machine);
  return machine;
}

hardware::DeviceSpec measure_machine() {
  constexpr double kSeconds = 4.0;
  std::vector<cpu::FamilyProbe> probes = cpu::gemm_probes(DType::kF32);
  for (cpu::FamilyProbe& probe : cpu::gemm_probes(DType::kBF16)) probes.push_back(std::move(probe));
  const hardware::DeviceSpec machine = cpu::measure_device(compute_threads(), kSeconds, probes);
  hardware::save_cached_device(posix_file_system(), machine);
  return machine;
}

}  // namespace strata::cli
