// The CUDA driver, opened at run time. Types and numbers are those of cuda.h, whose binary interface is
// fixed: tests build without the toolkit and run without a driver.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace strata::gpu_tests::cuda {

using Result = int;
using DeviceOrdinal = int;
using Pointer = unsigned long long;
using Context = struct ContextHandle*;
using Module = struct ModuleHandle*;
using Function = struct FunctionHandle*;
using Stream = struct StreamHandle*;
using Event = struct EventHandle*;

inline constexpr Result kSuccess = 0;
inline constexpr Result kNoBinary = 209;  // the module is for another architecture

enum JitOption : int { kInfoLog = 3, kInfoLogBytes = 4, kErrorLog = 5, kErrorLogBytes = 6 };
enum FunctionAttribute : int { kMaxDynamicSharedBytes = 8 };
inline constexpr unsigned kNonBlockingStream = 1;
inline constexpr unsigned kEventWithTiming = 0, kEventWithoutTiming = 2;

// Every entry point: member, exported name, parameters.
#define STRATA_CUDA_DRIVER(entry)                                                                             \
  entry(init, cuInit, (unsigned flags)) entry(driver_version, cuDriverGetVersion, (int* version)) entry(      \
      error_name, cuGetErrorName, (Result error, const char** name))                                          \
      entry(error_text, cuGetErrorString, (Result error, const char** text)) entry(                           \
          device_count, cuDeviceGetCount, (int* count)) entry(device, cuDeviceGet,                            \
                                                              (DeviceOrdinal * device, int ordinal))          \
          entry(device_name, cuDeviceGetName, (char* name, int bytes, DeviceOrdinal device)) entry(           \
              device_attribute, cuDeviceGetAttribute, (int* value, int attribute, DeviceOrdinal device))      \
              entry(device_memory, cuDeviceTotalMem_v2, (size_t * bytes, DeviceOrdinal device)) entry(        \
                  retain_context, cuDevicePrimaryCtxRetain,                                                   \
                  (Context * context, DeviceOrdinal device)) entry(set_context, cuCtxSetCurrent,              \
                                                                   (Context context))                         \
                  entry(synchronize, cuCtxSynchronize, ()) entry(                                             \
                      load_module, cuModuleLoadDataEx,                                                        \
                      (Module * module, const void* image, unsigned options, JitOption* names,                \
                       void** values)) entry(unload_module, cuModuleUnload, (Module module))                  \
                      entry(function, cuModuleGetFunction,                                                    \
                            (                                                                                 \
                                Function *                                                                    \
                                    function,                                                                 \
                                Module module,                                                                \
                                const char*                                                                   \
                                    name)) entry(set_function_attribute, cuFuncSetAttribute,                  \
                                                 (Function function, int attribute, int value))               \
                          entry(                                                                              \
                              launch,                                                                         \
                              cuLaunchKernel,                                                                 \
                              (Function function, unsigned grid_x, unsigned grid_y, unsigned grid_z,          \
                               unsigned block_x,                                                              \
                               unsigned block_y,                                                              \
                               unsigned block_z,                                                              \
                               unsigned shared_bytes,                                                         \
                               Stream stream,                                                                 \
                               void** arguments,                                                              \
                               void**                                                                         \
                                   extra)) entry(allocate, cuMemAlloc_v2, (Pointer * address, size_t bytes))  \
                              entry(free, cuMemFree_v2, (Pointer address)) entry(                             \
                                  memory_info, cuMemGetInfo_v2,                                               \
                                  (size_t * free,                                                             \
                                   size_t *                                                                   \
                                       total)) entry(allocate_async, cuMemAllocAsync,                         \
                                                     (Pointer * address, size_t bytes, Stream stream))        \
                                  entry(free_async, cuMemFreeAsync, (Pointer address, Stream stream)) entry(  \
                                      allocate_host, cuMemHostAlloc,                                          \
                                      (void** memory, size_t bytes, unsigned flags))                          \
                                      entry(free_host, cuMemFreeHost, (void* memory)) entry(                  \
                                          copy_to_device,                                                     \
                                          cuMemcpyHtoD_v2,                                                    \
                                          (Pointer to, const void* from,                                      \
                                           size_t                                                             \
                                               bytes)) entry(copy_to_host, cuMemcpyDtoH_v2,                   \
                                                             (void* to, Pointer from, size_t bytes))          \
                                          entry(copy_to_device_async, cuMemcpyHtoDAsync_v2,                   \
                                                (Pointer to, const void* from, size_t bytes, Stream stream))  \
                                              entry(copy_to_host_async, cuMemcpyDtoHAsync_v2,                 \
                                                    (void* to, Pointer from, size_t bytes, Stream stream))    \
                                                  entry(copy_async, cuMemcpyDtoDAsync_v2,                     \
                                                        (Pointer to, Pointer from, size_t bytes,              \
                                                         Stream stream))                                      \
                                                      entry(fill_async, cuMemsetD8Async,                      \
                                                            (Pointer to, unsigned char value, size_t bytes,   \
                                                             Stream stream))                                  \
                                                          entry(create_stream, cuStreamCreate,                \
                                                                (Stream * stream,                             \
                                                                 unsigned                                     \
                                                                     flags)) entry(destroy_stream,            \
                                                                                   cuStreamDestroy_v2,        \
                                                                                   (Stream stream))           \
                                                              entry(synchronize_stream, cuStreamSynchronize,  \
                                                                    (Stream stream))                          \
                                                                  entry(wait_event, cuStreamWaitEvent,        \
                                                                        (Stream stream, Event event,          \
                                                                         unsigned flags))                     \
                                                                      entry(create_event, cuEventCreate,      \
                                                                            (Event * event, unsigned flags))  \
                                                                          entry(destroy_event,                \
                                                                                cuEventDestroy_v2,            \
                                                                                (Event event))                \
                                                                              entry(record_event,             \
                                                                                    cuEventRecord,            \
                                                                                    (Event event,             \
                                                                                     Stream stream))          \
                                                                                  entry(synchronize_event,    \
                                                                                        cuEventSynchronize,   \
                                                                                        (Event event))        \
                                                                                      entry(                  \
                                                                                          elapsed,            \
                                                                                          cuEventElapsedTime, \
                                                                                          (float*             \
                                                                                               milliseconds,  \
                                                                                           Event start,       \
                                                                                           Event end))

struct Driver {
#define STRATA_MEMBER(member, name, parameters) Result(*member) parameters;
  STRATA_CUDA_DRIVER(STRATA_MEMBER)
#undef STRATA_MEMBER
  // Throws std::runtime_error with the driver's words; `what` names the operation.
  void check(Result result, const char* what) const;
};

// The driver, with the first card's context. Opened once; throws std::runtime_error where there is none.
struct Card {
  const Driver* driver;
  DeviceOrdinal device;
  Context context;
  int capability;  // 90
  std::string name;

  int attribute(int number) const;
  // Calls of this thread go to the card from now on.
  void use() const;
};
const Card& card();

}  // namespace strata::gpu_tests::cuda
