// The CUDA driver, opened at run time. Types and numbers match cuda.h, whose binary interface is stable, so that this
// builds without the toolkit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace strata::cuda {

using Result = int;
using DeviceOrdinal = int;
using Pointer = unsigned long long;
using Context = struct ContextHandle*;
using Module = struct ModuleHandle*;
using Function = struct FunctionHandle*;
using Stream = struct StreamHandle*;
using Event = struct EventHandle*;

inline constexpr Result kSuccess = 0, kOutOfMemory = 2, kNoDevice = 100, kInvalidImage = 200;
inline constexpr Result kNoBinary = 209;  // the module is for another architecture
inline constexpr Result kNotReady = 600;  // of queries: work is in flight

enum JitOption : int { kInfoLog = 3, kInfoLogBytes = 4, kErrorLog = 5, kErrorLogBytes = 6 };
enum FunctionAttribute : int { kMaxDynamicSharedBytes = 8 };
inline constexpr unsigned kNonBlockingStream = 1;
inline constexpr unsigned kPortableMemory = 1,
                          kMappedMemory = 2;    // of the host, for all contexts and for the GPU
inline constexpr unsigned kWithoutBarrier = 1;  // of write_value: earlier writes may follow it
inline constexpr unsigned kEventWithTiming = 0, kEventWithoutTiming = 2;

// The driver functions in use. Copies and fills take a stream: without one they may return before their bytes
// have arrived, and non-blocking streams do not wait for them.
struct Driver {
  Result (*init)(unsigned flags);
  Result (*driver_version)(int* version);
  Result (*error_name)(Result error, const char** name);
  Result (*error_text)(Result error, const char** text);
  Result (*device_count)(int* count);
  Result (*device)(DeviceOrdinal* device, int ordinal);
  Result (*device_name)(char* name, int bytes, DeviceOrdinal device);
  Result (*device_attribute)(int* value, int attribute, DeviceOrdinal device);
  Result (*device_memory)(size_t* bytes, DeviceOrdinal device);
  Result (*device_uuid)(unsigned char* sixteen_bytes, DeviceOrdinal device);
  Result (*device_bus_id)(char* text, int bytes, DeviceOrdinal device);
  Result (*retain_context)(Context* context, DeviceOrdinal device);
  Result (*set_context)(Context context);
  Result (*synchronize)();
  Result (*load_module)(Module* module, const void* image, unsigned options, JitOption* names, void** values);
  Result (*unload_module)(Module module);
  Result (*function)(Function* function, Module module, const char* name);
  Result (*set_function_attribute)(Function function, int attribute, int value);
  Result (*launch)(Function function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                   unsigned block_y, unsigned block_z, unsigned shared_bytes, Stream stream, void** arguments,
                   void** extra);
  Result (*allocate)(Pointer* address, size_t bytes);
  Result (*free)(Pointer address);
  Result (*memory_info)(size_t* free, size_t* total);
  Result (*allocate_async)(Pointer* address, size_t bytes, Stream stream);
  Result (*free_async)(Pointer address, Stream stream);
  Result (*allocate_host)(void** memory, size_t bytes, unsigned flags);
  Result (*free_host)(void* memory);
  Result (*copy_to_device_async)(Pointer to, const void* from, size_t bytes, Stream stream);
  Result (*copy_to_host_async)(void* to, Pointer from, size_t bytes, Stream stream);
  Result (*copy_async)(Pointer to, Pointer from, size_t bytes, Stream stream);
  Result (*fill_async)(Pointer to, unsigned char value, size_t bytes, Stream stream);
  Result (*create_stream)(Stream* stream, unsigned flags);
  Result (*destroy_stream)(Stream stream);
  Result (*synchronize_stream)(Stream stream);
  Result (*query_stream)(Stream stream);
  Result (*wait_event)(Stream stream, Event event, unsigned flags);
  Result (*write_value)(Stream stream, Pointer address, uint32_t value, unsigned flags);
  Result (*create_event)(Event* event, unsigned flags);
  Result (*destroy_event)(Event event);
  Result (*record_event)(Event event, Stream stream);
  Result (*synchronize_event)(Event event);
  Result (*query_event)(Event event);
  Result (*elapsed)(float* milliseconds, Event start, Event end);

  // WorldError with the driver's message and advice to the user; `what` names the operation.
  void check(Result result, const char* what) const;
};

// Whether a result may be that of an earlier call, whose work failed on the GPU: codes 214, 220, 226 (ECC, NVLink) and those
// from 700 on.
constexpr bool is_asynchronous(Result result) {
  return result == 214 || result == 220 || result == 226 || result >= 700;
}

// Opens the driver. WorldError without one, for one that is older than CUDA 12.8, and for the tests' twin (which has the
// symbol strata_twin) unless the environment has STRATA_TWIN. `devices` is looked at only to explain a failure.
Driver load_driver(const char* library = "libcuda.so.1", const std::filesystem::path& devices = "/dev");

// A GPU: the driver, with the context of the device of this number. The driver is opened once in a process.
struct Card {
  const Driver* driver;
  DeviceOrdinal device;
  Context context;
  int capability;  // 90
  std::string name;

  int attribute(int number) const;
  // Directs this thread's calls to the GPU.
  void use() const;
  // For the thread's current context. WorldError if less memory is free: who has it, and the budget that would fit.
  // `what` needs the bytes ("the run").
  Pointer allocate(size_t bytes, const char* what) const;
  // Loads zero-terminated PTX. WorldError if the driver refuses it: for which architecture and version it is, and the
  // driver's reason. `what` names the kernels.
  Module load(std::string_view ptx, const char* what) const;
};

// WorldError without a driver or such a device, if another program has it, and below kOldestCapability.
Card open_card(int ordinal);
inline constexpr int kOldestCapability = 80;  // Ampere: cp.async, mma of bf16

// A process that has a GPU open.
struct Holder {
  int process;
  std::string name;
};
// Other processes with /dev/nvidia`minor` open, of those that this user may see; any GPU if minor is negative. By number.
std::vector<Holder> holders_of_gpu(const std::filesystem::path& proc, int minor);
// Those of this GPU as text, "python3 (4711), a (5) and 2 more"; empty if none is known.
std::string users_of(const Card& card);

// Numbers of device attributes.
inline constexpr int kMultiprocessors = 16, kCapabilityMajor = 75, kCapabilityMinor = 76;

}  // namespace strata::cuda
