// A libcuda.so.1 that uses the PTX executor: GPU programs run without a GPU. Tests the path to the GPU, not
// its numbers. Streams run when the host waits, so that unordered work on different streams is detected. With
// STRATA_PTXAS set to nvcc's assembler, it rejects PTX that the assembler rejects.
#include <fmt/core.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <list>
#include <memory>
#include <mutex>
#include <vector>

#include "hardware/card.h"
#include "ptx/device.h"

namespace strata::gpu_tests {

using namespace strata::cuda;

namespace {

using Clock = std::chrono::steady_clock;

struct FakeModule {
  const gpu_tests::Module* module;
};
struct FakeEvent {
  EventId id;
  Clock::time_point recorded;
};

// Streams have the executor's numbers; the null stream is its first. Other streams do not wait for it.
constexpr StreamId kNullStream = 1;

struct State {
  std::mutex mutex;
  Device device{{.seed = 1, .checks = {.unwritten = false}, .mma = MmaSum::kHopper}};
  std::list<FakeModule> modules;
  std::vector<StreamId> idle_streams;
  std::vector<EventId> idle_events;
  int count = 0;  // number of assembled texts
};
// The driver's state, one per process.
State& state() {
  static State all;
  return all;
}

StreamId number_of(Stream stream) {
  return stream == nullptr ? kNullStream : static_cast<StreamId>(reinterpret_cast<uintptr_t>(stream));
}
FakeEvent& event_of(Event event) {
  return *reinterpret_cast<FakeEvent*>(event);
}

// A destroyed one to reuse, or a new one.
template <typename T, typename F>
T reused(std::vector<T>& idle, F create) {
  if (idle.empty()) return create();
  const T one = idle.back();
  idle.pop_back();
  return one;
}

// Reads the host's bytes now, as a driver stages pageable memory; they arrive when their stream runs.
void copy_in(Pointer to, const void* from, size_t bytes, StreamId stream) {
  const auto* first = static_cast<const std::byte*>(from);
  const auto staged = std::make_shared<std::vector<std::byte>>(first, first + bytes);
  state().device.copy_in(to, staged->data(), bytes, stream);
  state().device.call([staged] {}, stream);
}

std::string assembler_errors(const std::string& text, int number) {
  const char* assembler = std::getenv("STRATA_PTXAS");
  if (assembler == nullptr) return {};
  const std::string file =
      fmt::format("{}/fake_{}_{}.ptx", std::getenv("TMPDIR") ? std::getenv("TMPDIR") : "/tmp",
                  static_cast<const void*>(&state()), number);
  std::ofstream(file) << text;
  const std::string command =
      fmt::format("{} -arch=sm_90a -o /dev/null {} >{}.log 2>&1", assembler, file, file);
  const int status = std::system(command.c_str());
  std::ifstream log(file + ".log");
  std::string words{std::istreambuf_iterator<char>(log), {}};
  std::remove(file.c_str());
  std::remove((file + ".log").c_str());
  return status == 0 ? std::string() : words;
}

template <typename F>
Result guarded(F function) {
  try {
    const std::lock_guard lock(state().mutex);
    function();
    return kSuccess;
  } catch (const std::exception& error) {
    fmt::print(stderr, "fake driver: {}\n", error.what());
    return 719;  // launch failed
  }
}

}  // namespace

extern "C" {
// NOLINTBEGIN(readability-identifier-naming): the names of the driver's symbols

Result cuInit(unsigned) {
  return kSuccess;
}
Result cuDriverGetVersion(int* version) {
  *version = 13000;
  return kSuccess;
}
Result cuGetErrorName(Result, const char** name) {
  *name = "CUDA_ERROR";
  return kSuccess;
}
Result cuGetErrorString(Result, const char** text) {
  *text = "of the fake driver";
  return kSuccess;
}
Result cuDeviceGetCount(int* count) {
  *count = 1;
  return kSuccess;
}
Result cuDeviceGet(DeviceOrdinal* device, int) {
  *device = 0;
  return kSuccess;
}
Result cuDeviceGetName(char* name, int bytes, DeviceOrdinal) {
  std::snprintf(name, static_cast<size_t>(bytes), "PTX executor");
  return kSuccess;
}
Result cuDeviceGetAttribute(int* value, int attribute, DeviceOrdinal) {
  *value = attribute == 75 ? 9 : attribute == 76 ? 0 : attribute;
  return kSuccess;
}
Result cuDeviceTotalMem_v2(size_t* bytes, DeviceOrdinal) {
  *bytes = size_t{1} << 30;
  return kSuccess;
}
Result cuDevicePrimaryCtxRetain(Context* context, DeviceOrdinal) {
  *context = nullptr;
  return kSuccess;
}
Result cuCtxSetCurrent(Context) {
  return kSuccess;
}
Result cuCtxSynchronize() {
  return guarded([] { state().device.synchronize(); });
}

Result cuModuleLoadDataEx(cuda::Module* module, const void* image, unsigned options, JitOption* names,
                          void** values) {
  const std::string text = static_cast<const char*>(image);
  int number = 0;
  {
    const std::lock_guard lock(state().mutex);
    number = state().count++;
  }
  std::string errors = assembler_errors(text, number);
  if (errors.empty()) {
    try {
      const std::lock_guard lock(state().mutex);
      state().modules.push_back({&state().device.load(text, "module.ptx")});
      *module = reinterpret_cast<cuda::Module>(&state().modules.back());
      return kSuccess;
    } catch (const std::exception& error) {
      errors = error.what();
    }
  }
  for (unsigned n = 0; n < options; ++n) {
    if (names[n] == kErrorLog) std::snprintf(static_cast<char*>(values[n]), 1024, "%s", errors.c_str());
  }
  return 218;  // invalid PTX
}
Result cuModuleUnload(Module) {
  return kSuccess;
}
Result cuModuleGetFunction(Function* function, cuda::Module module, const char* name) {
  return guarded([&] {
    const Kernel& kernel = reinterpret_cast<FakeModule*>(module)->module->kernel(name);
    *function = reinterpret_cast<Function>(const_cast<Kernel*>(&kernel));
  });
}
Result cuFuncSetAttribute(Function, int, int) {
  return kSuccess;
}
Result cuLaunchKernel(Function function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                      unsigned block_y, unsigned block_z, unsigned shared_bytes, Stream stream,
                      void** arguments, void**) {
  return guarded([&] {
    const Kernel& kernel = *reinterpret_cast<const Kernel*>(function);
    std::vector<std::byte> bytes(kernel.param_bytes);
    for (size_t n = 0; n < kernel.params.size(); ++n)
      std::memcpy(bytes.data() + kernel.params[n].offset, arguments[n], kernel.params[n].bytes);
    state().device.launch_raw(kernel,
                              {.grid = {grid_x, grid_y, grid_z},
                               .block = {block_x, block_y, block_z},
                               .shared_bytes = shared_bytes,
                               .stream = number_of(stream)},
                              bytes);
  });
}

Result cuMemAlloc_v2(Pointer* address, size_t bytes) {
  return guarded([&] { *address = state().device.allocate(bytes); });
}
Result cuMemFree_v2(Pointer address) {
  return guarded([&] {
    state().device.synchronize();
    state().device.free(address);
  });
}
Result cuMemGetInfo_v2(size_t* free, size_t* total) {
  *free = *total = size_t{1} << 30;
  return kSuccess;
}
Result cuMemAllocAsync(Pointer* address, size_t bytes, Stream) {
  return cuMemAlloc_v2(address, bytes);
}
Result cuMemFreeAsync(Pointer address, Stream) {
  return cuMemFree_v2(address);
}
Result cuMemHostAlloc(void** memory, size_t bytes, unsigned) {
  *memory = std::malloc(bytes);
  return kSuccess;
}
Result cuMemFreeHost(void* memory) {
  std::free(memory);
  return kSuccess;
}
Result cuMemcpyHtoDAsync_v2(Pointer to, const void* from, size_t bytes, Stream stream) {
  return guarded([&] { copy_in(to, from, bytes, number_of(stream)); });
}
Result cuMemcpyDtoHAsync_v2(void* to, Pointer from, size_t bytes, Stream stream) {
  return guarded([&] { state().device.copy_out(to, from, bytes, number_of(stream)); });
}
Result cuMemcpyDtoDAsync_v2(Pointer to, Pointer from, size_t bytes, Stream stream) {
  return guarded([&] { state().device.copy(to, from, bytes, number_of(stream)); });
}
Result cuMemsetD8Async(Pointer to, unsigned char value, size_t bytes, Stream stream) {
  return guarded([&] { state().device.fill(to, std::byte{value}, bytes, number_of(stream)); });
}

Result cuStreamCreate(Stream* stream, unsigned flags) {
  if (flags != kNonBlockingStream) return 801;  // not supported
  return guarded([&] {
    const StreamId id = reused(state().idle_streams, [] { return state().device.create_stream(); });
    *stream = reinterpret_cast<Stream>(static_cast<uintptr_t>(id));
  });
}
Result cuStreamDestroy_v2(Stream stream) {
  return guarded([&] {
    state().device.synchronize(number_of(stream));
    state().idle_streams.push_back(number_of(stream));
  });
}
Result cuStreamSynchronize(Stream stream) {
  return guarded([&] { state().device.synchronize(number_of(stream)); });
}
Result cuStreamWaitEvent(Stream stream, Event event, unsigned) {
  return guarded([&] { state().device.wait(number_of(stream), event_of(event).id); });
}
Result cuStreamWriteValue32_v2(Stream stream, Pointer address, uint32_t value, unsigned) {
  return guarded([&] {
    auto* const word = reinterpret_cast<uint32_t*>(address);
    state().device.call([word, value] { *word = value; }, number_of(stream));
  });
}
Result cuEventCreate(Event* event, unsigned) {
  return guarded([&] {
    const EventId id = reused(state().idle_events, [] { return state().device.create_event(); });
    *event = reinterpret_cast<Event>(new FakeEvent{id, {}});
  });
}
Result cuEventDestroy_v2(Event event) {
  return guarded([&] {
    state().device.synchronize();
    state().idle_events.push_back(event_of(event).id);
    delete &event_of(event);
  });
}
Result cuEventRecord(Event event, Stream stream) {
  return guarded([&] {
    FakeEvent& one = event_of(event);
    state().device.call([&one] { one.recorded = Clock::now(); }, number_of(stream));
    state().device.record(one.id, number_of(stream));
  });
}
Result cuEventSynchronize(Event event) {
  return guarded([&] { state().device.synchronize_event(event_of(event).id); });
}
Result cuEventElapsedTime(float* milliseconds, Event start, Event end) {
  *milliseconds =
      std::chrono::duration<float, std::milli>(event_of(end).recorded - event_of(start).recorded).count();
  return kSuccess;
}
// NOLINTEND(readability-identifier-naming)

}  // extern "C"

}  // namespace strata::gpu_tests
