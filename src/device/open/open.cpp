#include "device/open/open.h"

#include "base/error.h"
#include "base/loaded_module.h"
#include "base/parallel.h"
#include "device/cpu/bindings.h"
#include "device/cpu/device.h"
#include "device/cuda/device.h"
#include "device/described/bindings.h"
#include "device/gpu/bindings.h"
#include "device/reference/bindings.h"
#include "kernels/cpu/measure.h"

namespace strata::device {

namespace {

std::shared_ptr<Device> open_cuda(int ordinal) {
  const LoadedModule module = load_module(kCudaModule);
  const auto make = reinterpret_cast<OpenCudaDevice>(module.symbol(kOpenCudaDevice));
  if (make == nullptr) {
    throw WorldError(
        "[device.kind] found cuda, but this build has no GPU code: {} cannot be loaded ({}). Install CUDA's nvcc "
        "12.8 or later, or run make cuda, and build again; or choose cpu",
        module.path.string(), module.handle == nullptr ? module.error : "it is of another program");
  }
  const std::span<const Binding> bindings = gpu_bindings();
  return std::shared_ptr<Device>(make(ordinal, bindings.data(), bindings.size()));
}

}  // namespace

std::shared_ptr<Device> open(Kind kind, int ordinal, int threads) {
  if (kind == Kind::kCuda) return open_cuda(ordinal);
  STRATA_CHECK(ordinal == 0, "device {} of a host that has one processor", ordinal);
  Target target = cpu_target(threads > 0 ? threads : compute_threads());
  if (kind == Kind::kReference) target.bindings = reference_bindings();
  return std::make_shared<CpuDevice>(std::move(target));
}

Target target_for(hardware::DeviceSpec spec) {
  if (spec.kind == "cpu") return {std::move(spec), cpu_bindings()};
  return described_target(std::move(spec));
}

Target gpu_target_for(hardware::DeviceSpec spec) {
  static const std::vector<Binding> kTable = with_fallback(gpu_bindings(), described_bindings());
  return {std::move(spec), kTable};
}

hardware::IsaFlags compiled_instruction_sets() {
  return cpu::compiled_instruction_sets();
}

}  // namespace strata::device
