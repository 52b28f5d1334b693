#include "device/cuda/driver.h"

#include <dlfcn.h>
#include <fmt/core.h>

#include "base/error.h"

namespace strata::cuda {
namespace {

Driver open_driver() {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    throw WorldError(
        "[device.kind] found cuda, but no NVIDIA driver: {}; install one that supports CUDA 12.8 or later, or choose cpu",
        dlerror());
  }
  Driver driver;
  const auto find = [&]<typename F>(F& member, const char* name) {
    void* symbol = dlsym(library, name);
    if (symbol == nullptr)
      throw WorldError(
          "[device.kind] the NVIDIA driver (libcuda.so.1) has no {}: it is too old; expected one that supports CUDA 12.8",
          name);
    member = reinterpret_cast<F>(symbol);
  };
  find(driver.init, "cuInit");
  find(driver.driver_version, "cuDriverGetVersion");
  find(driver.error_name, "cuGetErrorName");
  find(driver.error_text, "cuGetErrorString");
  find(driver.device_count, "cuDeviceGetCount");
  find(driver.device, "cuDeviceGet");
  find(driver.device_name, "cuDeviceGetName");
  find(driver.device_attribute, "cuDeviceGetAttribute");
  find(driver.device_memory, "cuDeviceTotalMem_v2");
  find(driver.retain_context, "cuDevicePrimaryCtxRetain");
  find(driver.set_context, "cuCtxSetCurrent");
  find(driver.synchronize, "cuCtxSynchronize");
  find(driver.load_module, "cuModuleLoadDataEx");
  find(driver.unload_module, "cuModuleUnload");
  find(driver.function, "cuModuleGetFunction");
  find(driver.set_function_attribute, "cuFuncSetAttribute");
  find(driver.launch, "cuLaunchKernel");
  find(driver.allocate, "cuMemAlloc_v2");
  find(driver.free, "cuMemFree_v2");
  find(driver.memory_info, "cuMemGetInfo_v2");
  find(driver.allocate_async, "cuMemAllocAsync");
  find(driver.free_async, "cuMemFreeAsync");
  find(driver.allocate_host, "cuMemHostAlloc");
  find(driver.free_host, "cuMemFreeHost");
  find(driver.copy_to_device_async, "cuMemcpyHtoDAsync_v2");
  find(driver.copy_to_host_async, "cuMemcpyDtoHAsync_v2");
  find(driver.copy_async, "cuMemcpyDtoDAsync_v2");
  find(driver.fill_async, "cuMemsetD8Async");
  find(driver.create_stream, "cuStreamCreate");
  find(driver.destroy_stream, "cuStreamDestroy_v2");
  find(driver.synchronize_stream, "cuStreamSynchronize");
  find(driver.wait_event, "cuStreamWaitEvent");
  find(driver.write_value, "cuStreamWriteValue32_v2");
  find(driver.create_event, "cuEventCreate");
  find(driver.destroy_event, "cuEventDestroy_v2");
  find(driver.record_event, "cuEventRecord");
  find(driver.synchronize_event, "cuEventSynchronize");
  find(driver.elapsed, "cuEventElapsedTime");
  return driver;
}

const Driver& the_driver() {
  static const Driver kDriver = open_driver();
  return kDriver;
}

}  // namespace

Card open_card(int ordinal) {
  Card card;
  card.driver = &the_driver();
  const Driver& driver = *card.driver;
  driver.check(driver.init(0), "cuInit");
  int count = 0;
  driver.check(driver.device_count(&count), "cuDeviceGetCount");
  if (ordinal >= count)
    throw WorldError(
        "[device.kind] found {} devices that CUDA shows, expected device {}; CUDA_VISIBLE_DEVICES may hide some",
        count, ordinal);
  driver.check(driver.device(&card.device, ordinal), "cuDeviceGet");
  char name[256] = "";
  driver.check(driver.device_name(name, sizeof name, card.device), "cuDeviceGetName");
  card.name = name;
  card.capability = card.attribute(kCapabilityMajor) * 10 + card.attribute(kCapabilityMinor);
  driver.check(driver.retain_context(&card.context, card.device), "cuDevicePrimaryCtxRetain");
  return card;
}

void Driver::check(Result result, const char* what) const {
  if (result == kSuccess) return;
  const char *name = nullptr, *text = nullptr;
  error_name(result, &name);
  error_text(result, &text);
  throw WorldError("[cuda] {}: {} ({})", what, text == nullptr ? "unknown error" : text,
                   name == nullptr ? std::to_string(result) : name);
}

int Card::attribute(int number) const {
  int value = 0;
  driver->check(driver->device_attribute(&value, number, device), "cuDeviceGetAttribute");
  return value;
}

void Card::use() const {
  driver->check(driver->set_context(context), "cuCtxSetCurrent");
}

}  // namespace strata::cuda
