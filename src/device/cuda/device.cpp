#include "device/cuda/device.h"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <unordered_map>

#include "base/clock.h"
#include "base/error.h"
#include "device/cuda/driver.h"
#include "device/gpu/bindings.h"
#include "device/gpu/queue.h"

namespace strata::device {
namespace {

using cuda::Card;
using cuda::Driver;

constexpr int kOldest = 80;  // compute capability × 10

class CudaMemory final : public Memory {
 public:
  CudaMemory(const Card& card, int64_t bytes) : card_(card), bytes_(bytes) {
    card_.use();
    const cuda::Result result =
        card_.driver->allocate(&address_, static_cast<size_t>(std::max<int64_t>(bytes, 1)));
    if (result == cuda::kSuccess) return;
    size_t free = 0, total = 0;
    card_.driver->memory_info(&free, &total);
    throw WorldError("[memory.budget] {} needs {} on {}, of whose {} other programs leave {}", "the run",
                     human_bytes(static_cast<double>(bytes)), card_.name,
                     human_bytes(static_cast<double>(total)), human_bytes(static_cast<double>(free)));
  }
  ~CudaMemory() override {
    card_.use();
    card_.driver->free(address_);
  }
  int64_t bytes() const override { return bytes_; }
  std::byte* address() const override {
    return reinterpret_cast<std::byte*>(address_);  // NOLINT(performance-no-int-to-ptr)
  }

 private:
  const Card& card_;
  int64_t bytes_;
  cuda::Pointer address_ = 0;
};

cuda::Pointer pointer_of(const void* address) {
  return reinterpret_cast<cuda::Pointer>(address);
}

class CudaQueue final : public GpuQueue {
 public:
  explicit CudaQueue(const Card& card) : card_(card), driver_(*card.driver) {
    card_.use();
    driver_.check(driver_.create_stream(&stream_, cuda::kNonBlockingStream), "cuStreamCreate");
  }
  ~CudaQueue() override {
    card_.use();
    driver_.synchronize_stream(stream_);
    for (const auto& [name, module] : modules_) driver_.unload_module(module);
    driver_.destroy_stream(stream_);
  }
  CudaQueue(const CudaQueue&) = delete;
  CudaQueue& operator=(const CudaQueue&) = delete;

  void start(const gpu::KernelLaunch& kernel, const void* args, size_t) override {
    const cuda::Function function = function_of(kernel);
    std::array<void*, 1> values = {const_cast<void*>(args)};
    driver_.check(driver_.launch(function, kernel.grid_x, kernel.grid_y, kernel.grid_z, kernel.threads, 1, 1,
                                 kernel.shared_bytes, stream_, values.data(), nullptr),
                  kernel.kernel.c_str());
  }
  void copy(void* to, const void* from, int64_t bytes) override {
    driver_.check(driver_.copy_async(pointer_of(to), pointer_of(from), static_cast<size_t>(bytes), stream_),
                  "cuMemcpyDtoDAsync");
  }
  void clear(void* at, int64_t bytes) override {
    if (bytes > 0)
      driver_.check(driver_.fill_async(pointer_of(at), 0, static_cast<size_t>(bytes), stream_),
                    "cuMemsetD8Async");
  }
  // The host's memory is free again when these return.
  void upload(void* to, const void* from, int64_t bytes) override {
    driver_.check(driver_.copy_to_device_async(pointer_of(to), from, static_cast<size_t>(bytes), stream_),
                  "cuMemcpyHtoDAsync");
    wait();
  }
  void download(void* to, const void* from, int64_t bytes) {
    driver_.check(driver_.copy_to_host_async(to, pointer_of(from), static_cast<size_t>(bytes), stream_),
                  "cuMemcpyDtoHAsync");
    wait();
  }
  void wait() { driver_.check(driver_.synchronize_stream(stream_), "cuStreamSynchronize"); }
  cuda::Stream stream() const { return stream_; }

 private:
  cuda::Function function_of(const gpu::KernelLaunch& kernel) {
    const auto [at, fresh] = functions_.try_emplace(kernel.kernel);
    Loaded& loaded = at->second;
    if (fresh)
      driver_.check(driver_.function(&loaded.function, module_of(kernel.module), kernel.kernel.c_str()),
                    kernel.kernel.c_str());
    if (kernel.shared_bytes > loaded.shared_bytes) {
      driver_.check(driver_.set_function_attribute(loaded.function, cuda::kMaxDynamicSharedBytes,
                                                   static_cast<int>(kernel.shared_bytes)),
                    kernel.kernel.c_str());
      loaded.shared_bytes = kernel.shared_bytes;
    }
    return loaded.function;
  }

  cuda::Module module_of(const std::string& name) {
    const auto [at, fresh] = modules_.try_emplace(name);
    if (!fresh) return at->second;
    const std::string_view text = ptx_of(name);
    if (text.empty()) throw InternalError("no GPU code of {}", name);
    std::array<char, 8192> log{};
    std::array<cuda::JitOption, 2> options = {cuda::kErrorLog, cuda::kErrorLogBytes};
    std::array<void*, 2> values = {log.data(), reinterpret_cast<void*>(log.size())};
    const cuda::Result result =
        driver_.load_module(&at->second, text.data(), 2, options.data(), values.data());
    if (result != cuda::kSuccess && log[0] != 0)
      throw WorldError("[cuda] {} does not accept the kernels of {}: {}", card_.name, name, log.data());
    driver_.check(result, "cuModuleLoadDataEx");
    return at->second;
  }

  struct Loaded {
    cuda::Function function = nullptr;
    uint32_t shared_bytes = 48 * 1024;  // what every kernel may have
  };
  const Card& card_;
  const Driver& driver_;
  cuda::Stream stream_ = nullptr;
  std::unordered_map<std::string, cuda::Module> modules_;
  std::unordered_map<std::string, Loaded> functions_;
};

// Events, whose times are relative to one whose time by the host's clock is known.
class CudaStopwatch final : public Stopwatch {
 public:
  CudaStopwatch(const Card& card, cuda::Stream stream, size_t marks)
      : card_(card), driver_(*card.driver), stream_(stream), events_(marks) {
    card_.use();
    driver_.check(driver_.create_event(&start_, cuda::kEventWithTiming), "cuEventCreate");
    driver_.check(driver_.record_event(start_, stream_), "cuEventRecord");
    driver_.check(driver_.synchronize_event(start_), "cuEventSynchronize");
    started_ = monotonic_seconds();
  }
  ~CudaStopwatch() override {
    card_.use();
    driver_.destroy_event(start_);
    for (const cuda::Event event : events_)
      if (event != nullptr) driver_.destroy_event(event);
  }
  CudaStopwatch(const CudaStopwatch&) = delete;
  CudaStopwatch& operator=(const CudaStopwatch&) = delete;

  void mark(size_t index) override {
    cuda::Event& event = events_[index];
    if (event == nullptr)
      driver_.check(driver_.create_event(&event, cuda::kEventWithTiming), "cuEventCreate");
    driver_.check(driver_.record_event(event, stream_), "cuEventRecord");
  }
  double at(size_t index) override {
    float milliseconds = 0;
    driver_.check(driver_.synchronize_event(events_[index]), "cuEventSynchronize");
    driver_.check(driver_.elapsed(&milliseconds, start_, events_[index]), "cuEventElapsedTime");
    return started_ + 1e-3 * static_cast<double>(milliseconds);
  }

 private:
  const Card& card_;
  const Driver& driver_;
  cuda::Stream stream_;
  cuda::Event start_ = nullptr;
  double started_ = 0;
  std::vector<cuda::Event> events_;
};

hardware::DeviceSpec spec_of(const Card& card) {
  hardware::DeviceSpec spec;
  spec.name = card.name;
  spec.kind = "gpu";
  spec.architecture = card.capability;
  spec.multiprocessors = card.attribute(cuda::kMultiprocessors);
  spec.cores = spec.threads = 1;
  size_t bytes = 0;
  card.driver->check(card.driver->device_memory(&bytes, card.device), "cuDeviceTotalMem");
  spec.memory_bytes = static_cast<int64_t>(bytes);
  return spec;
}

class CudaDevice final : public Device {
 public:
  explicit CudaDevice(const Card& card)
      : Device({spec_of(card), gpu_bindings()}), card_(card), queue_(card_) {}

  std::unique_ptr<Memory> allocate(int64_t bytes) override {
    auto memory = std::make_unique<CudaMemory>(card_, bytes);
    queue_.clear(memory->address(), bytes);
    queue_.wait();
    return memory;
  }
  void upload(Memory& to, int64_t offset, const void* from, int64_t bytes) override {
    check_range(to, offset, bytes);
    if (bytes > 0) queue_.upload(to.address() + offset, from, bytes);
  }
  void download(const Memory& from, int64_t offset, void* to, int64_t bytes) const override {
    check_range(from, offset, bytes);
    if (bytes > 0) queue_.download(to, from.address() + offset, bytes);
  }
  Launch begin_launches() override {
    card_.use();
    return {.threads = 1, .queue = static_cast<GpuQueue*>(&queue_)};
  }
  std::unique_ptr<Stopwatch> stopwatch(size_t marks) const override {
    return std::make_unique<CudaStopwatch>(card_, queue_.stream(), marks);
  }

 private:
  static void check_range(const Memory& memory, int64_t offset, int64_t bytes) {
    STRATA_CHECK(offset >= 0 && bytes >= 0 && offset + bytes <= memory.bytes(),
                 "bytes {} to {} of {} of a device's memory", offset, offset + bytes, memory.bytes());
  }

  Card card_;
  mutable CudaQueue queue_;
};

}  // namespace

std::shared_ptr<Device> open_cuda_device(int ordinal) {
  const Card card = cuda::open_card(ordinal);
  if (card.capability < kOldest)
    throw WorldError("[device.kind] {} has compute capability {}.{}, expected at least 8.0 (Ampere)",
                     card.name, card.capability / 10, card.capability % 10);
  return std::make_shared<CudaDevice>(card);
}

}  // namespace strata::device
