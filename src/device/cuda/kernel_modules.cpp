#include <zstd.h>

#include <array>

#include "base/error.h"
#include "device/cuda/modules.h"
#include "device/cuda/queue.h"

namespace strata::device {

std::string GpuCode::code() const {
  std::string out;
  const std::unique_ptr<ZSTD_DStream, size_t (*)(ZSTD_DStream*)> stream(ZSTD_createDStream(),
                                                                        ZSTD_freeDStream);
  if (stream == nullptr) throw std::bad_alloc();
  ZSTD_inBuffer from = {compressed.data(), compressed.size(), 0};
  std::array<char, 1 << 16> part;
  for (size_t left = 1; left != 0;) {
    ZSTD_outBuffer to = {part.data(), part.size(), 0};
    left = ZSTD_decompressStream(stream.get(), &to, &from);
    // The file cannot be read in part: the loader maps all of it.
    if (ZSTD_isError(left) || (to.pos == 0 && from.pos == from.size && left != 0))
      throw InternalError("the GPU code of {} is damaged", module);
    out.append(part.data(), to.pos);
  }
  return out;
}

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
    const std::string code = one.code();
    // The driver may refuse machine code; it compiles PTX for any GPU.
    if (one.architecture != 0 &&
        card_.driver->load_module(&module, code.data(), 0, nullptr, nullptr) != cuda::kSuccess)
      continue;
    if (one.architecture == 0) module = card_.load(code.c_str(), name.c_str());
    return modules_.emplace(name, module).first->second;
  }
  throw InternalError("no GPU code of {}", name);
}

}  // namespace strata::device
