#include "driver.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace strata::gpu_bench {
namespace {

constexpr int64_t kFlushBytes = int64_t{256} << 20;

void check(int result, const char* call) {
  if (result == 0) return;
  std::fprintf(stderr, "%s failed: error %d\n", call, result);
  std::exit(1);
}

}  // namespace

struct Driver::Calls {
  int (*cuInit)(unsigned);
  int (*cuDeviceGet)(int*, int);
  int (*cuDeviceGetName)(char*, int, int);
  int (*cuDeviceGetAttribute)(int*, int, int);
  int (*cuDevicePrimaryCtxRetain)(void**, int);
  int (*cuCtxSetCurrent)(void*);
  int (*cuCtxSynchronize)();
  int (*cuModuleLoad)(void**, const char*);
  int (*cuModuleGetFunction)(void**, void*, const char*);
  int (*cuFuncSetAttribute)(void*, int, int);
  int (*cuMemAlloc)(void**, size_t);
  int (*cuMemFree)(void*);
  int (*cuMemsetD8Async)(void*, unsigned char, size_t, void*);
  int (*cuMemcpyDtoH)(void*, const void*, size_t);
  int (*cuMemcpyHtoD)(void*, const void*, size_t);
  int (*cuMemcpyDtoDAsync)(void*, const void*, size_t, void*);
  int (*cuLaunchKernel)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*,
                        void**, void**);
  int (*cuTensorMapEncodeTiled)(void*, int, uint32_t, void*, const uint64_t*, const uint64_t*,
                                const uint32_t*, const uint32_t*, int, int, int, int);
  int (*cuEventCreate)(void**, unsigned);
  int (*cuEventRecord)(void*, void*);
  int (*cuEventElapsedTime)(float*, void*, void*);
};

#define STRATA_CALL(NAME, ...) check(calls_->NAME(__VA_ARGS__), #NAME)

Driver::Driver(std::string kernels) : kernels_(std::move(kernels)), calls_(new Calls) {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == nullptr) {
    std::fprintf(stderr, "no driver: %s\n", dlerror());
    std::exit(1);
  }
  const auto open = [&](auto& function, const char* name, const char* ending) {
    void* const symbol = dlsym(library, (std::string(name) + ending).c_str());
    if (symbol == nullptr) {
      std::fprintf(stderr, "the driver has no %s%s\n", name, ending);
      std::exit(1);
    }
    function = reinterpret_cast<std::decay_t<decltype(function)>>(symbol);
  };
#define STRATA_OPEN(NAME, ENDING) open(calls_->NAME, #NAME, ENDING)
  STRATA_OPEN(cuInit, "");
  STRATA_OPEN(cuDeviceGet, "");
  STRATA_OPEN(cuDeviceGetName, "");
  STRATA_OPEN(cuDeviceGetAttribute, "");
  STRATA_OPEN(cuDevicePrimaryCtxRetain, "");
  STRATA_OPEN(cuCtxSetCurrent, "");
  STRATA_OPEN(cuCtxSynchronize, "");
  STRATA_OPEN(cuModuleLoad, "");
  STRATA_OPEN(cuModuleGetFunction, "");
  STRATA_OPEN(cuFuncSetAttribute, "");
  STRATA_OPEN(cuMemAlloc, "_v2");
  STRATA_OPEN(cuMemFree, "_v2");
  STRATA_OPEN(cuMemsetD8Async, "");
  STRATA_OPEN(cuMemcpyDtoH, "_v2");
  STRATA_OPEN(cuMemcpyHtoD, "_v2");
  STRATA_OPEN(cuMemcpyDtoDAsync, "_v2");
  STRATA_OPEN(cuLaunchKernel, "");
  STRATA_OPEN(cuTensorMapEncodeTiled, "");
  STRATA_OPEN(cuEventCreate, "");
  STRATA_OPEN(cuEventRecord, "");
  STRATA_OPEN(cuEventElapsedTime, "");
  int device = 0;
  void* context = nullptr;
  STRATA_CALL(cuInit, 0);
  STRATA_CALL(cuDeviceGet, &device, 0);
  char name[128] = {};
  STRATA_CALL(cuDeviceGetName, name, sizeof name, device);
  name_ = name;
  int major = 0;
  STRATA_CALL(cuDeviceGetAttribute, &traits_.multiprocessors, 16, device);
  STRATA_CALL(cuDeviceGetAttribute, &major, 75, device);
  traits_.wgmma = major == 9;
  STRATA_CALL(cuDevicePrimaryCtxRetain, &context, device);
  STRATA_CALL(cuCtxSetCurrent, context);
  STRATA_CALL(cuMemAlloc, &flush_, static_cast<size_t>(kFlushBytes));
}

void* Driver::allocate_bytes(int64_t bytes) {
  void* address = nullptr;
  STRATA_CALL(cuMemAlloc, &address, static_cast<size_t>(std::max<int64_t>(bytes, 16)));
  allocations_.push_back(address);
  return address;
}
void Driver::free_all() {
  synchronize();
  for (void* const one : allocations_) STRATA_CALL(cuMemFree, one);
  allocations_.clear();
}
void Driver::fill(void* to, unsigned char value, int64_t bytes) {
  STRATA_CALL(cuMemsetD8Async, to, value, static_cast<size_t>(bytes), nullptr);
}
void Driver::read(void* to, const void* from, int64_t bytes) {
  STRATA_CALL(cuMemcpyDtoH, to, from, static_cast<size_t>(bytes));
}
void Driver::write(void* to, const void* from, int64_t bytes) {
  STRATA_CALL(cuMemcpyHtoD, to, from, static_cast<size_t>(bytes));
}
void Driver::copy(void* to, const void* from, int64_t bytes) {
  STRATA_CALL(cuMemcpyDtoDAsync, to, from, static_cast<size_t>(bytes), nullptr);
}
void Driver::synchronize() {
  STRATA_CALL(cuCtxSynchronize);
}

void* Driver::function(const gpu::KernelLaunch& call) {
  void*& module = modules_[call.module];
  if (module == nullptr)
    STRATA_CALL(cuModuleLoad, &module, (kernels_ + "/" + call.module + ".cubin").c_str());
  void*& function = functions_[call.kernel];
  if (function == nullptr) {
    STRATA_CALL(cuModuleGetFunction, &function, module, call.kernel.c_str());
  }
  // More than 48 KiB of dynamic shared memory must be requested.
  uint32_t& granted = shared_[call.kernel];
  if (call.shared_bytes > granted) {
    STRATA_CALL(cuFuncSetAttribute, function, 8, static_cast<int>(call.shared_bytes));
    granted = call.shared_bytes;
  }
  return function;
}

void Driver::launch_raw(const gpu::KernelLaunch& call, void* args) {
  void* params[] = {args};
  const int result = calls_->cuLaunchKernel(function(call), call.grid_x, call.grid_y, call.grid_z,
                                            call.threads, 1, 1, call.shared_bytes, nullptr, params, nullptr);
  check(result, call.kernel.c_str());
}

gpu::TensorMap Driver::tensor_map(const gpu::MatrixMap& map, const void* matrix) {
  gpu::TensorMap result;
  const uint64_t sizes[] = {static_cast<uint64_t>(map.columns), static_cast<uint64_t>(map.rows)},
                 strides[] = {static_cast<uint64_t>(map.stride) * 2};
  const uint32_t box[] = {64, static_cast<uint32_t>(map.box_rows)}, steps[] = {1, 1};
  constexpr int kBFloat16 = 9, kNoInterleave = 0, kSwizzle128 = 3, kPromote256 = 3, kZeros = 0;
  STRATA_CALL(cuTensorMapEncodeTiled, &result, kBFloat16, 2, const_cast<void*>(matrix), sizes, strides, box,
              steps, kNoInterleave, kSwizzle128, kPromote256, kZeros);
  return result;
}

double Driver::time(const std::function<void()>& work, int runs) {
  std::vector<void*> events(static_cast<size_t>(2 * runs));
  for (void*& event : events) STRATA_CALL(cuEventCreate, &event, 0);
  for (int i = 0; i < 2; ++i) work();
  for (int i = 0; i < runs; ++i) {
    fill(flush_, static_cast<unsigned char>(i), kFlushBytes);
    STRATA_CALL(cuEventRecord, events[static_cast<size_t>(2 * i)], nullptr);
    work();
    STRATA_CALL(cuEventRecord, events[static_cast<size_t>(2 * i + 1)], nullptr);
  }
  synchronize();
  std::vector<double> times;
  for (int i = 0; i < runs; ++i) {
    float milliseconds = 0;
    STRATA_CALL(cuEventElapsedTime, &milliseconds, events[static_cast<size_t>(2 * i)],
                events[static_cast<size_t>(2 * i + 1)]);
    times.push_back(static_cast<double>(milliseconds) * 1e3);
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

}  // namespace strata::gpu_bench
