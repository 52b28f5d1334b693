#include "base/error.h"
#include "device/cuda/modules.h"
#include "device/cuda/queue.h"

namespace strata::device {

KernelModules::~KernelModules() {
  card_.driver->set_context(card_.context);
  for (const auto& [name, module] : modules_) card_.driver->unload_module(module);
}

cuda::Function KernelModules::function_of(const gpu::KernelLaunch& kernel) {
  const cuda::Driver& driver = *card_.driver;
  const auto found = functions_.find(kernel.kernel);
  Loaded loaded = found == functions_.end() ? Loaded{} : found->second;
  if (loaded.function != nullptr && kernel.shared_bytes <= loaded.shared_bytes) return loaded.function;
  if (loaded.function == nullptr)
    driver.check(driver.function(&loaded.function, module_of(kernel.module), kernel.kernel.c_str()),
                 kernel.kernel.c_str());
  if (kernel.shared_bytes > loaded.shared_bytes) {
    driver.check(driver.set_function_attribute(loaded.function, cuda::kMaxDynamicSharedBytes,
                                               static_cast<int>(kernel.shared_bytes)),
                 kernel.kernel.c_str());
    loaded.shared_bytes = kernel.shared_bytes;
  }
  functions_[kernel.kernel] = loaded;
  return loaded.function;
}

cuda::Module KernelModules::module_of(const std::string& name) {
  if (const auto found = modules_.find(name); found != modules_.end()) return found->second;
  for (const GpuCode& one : gpu_code()) {
    if (one.module != name || !one.runs_on(card_.capability)) continue;
    cuda::Module module = nullptr;
    // The driver may refuse machine code; it compiles PTX for any GPU.
    if (one.architecture != 0 &&
        card_.driver->load_module(&module, one.code, 0, nullptr, nullptr) != cuda::kSuccess)
      continue;
    if (one.architecture == 0) module = card_.load(one.code, name.c_str());
    return modules_.emplace(name, module).first->second;
  }
  throw InternalError("no GPU code of {}", name);
}

}  // namespace strata::device
