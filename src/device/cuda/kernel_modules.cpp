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
  const std::string_view text = ptx_of(name);
  if (text.empty()) throw InternalError("no GPU code of {}", name);
  cuda::Module module = card_.load(text, name.c_str());
  modules_.emplace(name, module);
  return module;
}

}  // namespace strata::device
