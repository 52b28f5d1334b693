#include "device/open/open.h"

#include "base/error.h"
#include "base/parallel.h"
#include "device/cpu/bindings.h"
#include "device/cpu/device.h"
#include "device/described/bindings.h"
#include "device/reference/bindings.h"
#include "kernels/cpu/measure.h"

namespace strata::device {

std::shared_ptr<Device> open(Kind kind, int ordinal, int threads) {
  STRATA_CHECK(ordinal == 0, "device {} of a host that has one processor", ordinal);
  Target target = cpu_target(threads > 0 ? threads : compute_threads());
  if (kind == Kind::kReference) target.bindings = reference_bindings();
  return std::make_shared<CpuDevice>(std::move(target));
}

Target target_for(hardware::DeviceSpec spec) {
  if (spec.kind == "cpu") return {std::move(spec), cpu_bindings()};
  return described_target(std::move(spec));
}

hardware::IsaFlags compiled_instruction_sets() {
  return cpu::compiled_instruction_sets();
}

}  // namespace strata::device
