// A GPU as a GpuDevice, through the CUDA driver.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <vector>

#include "gpu_device.h"
#include "hardware/card.h"

namespace strata::gpu_tests {
namespace {

using cuda::Card;
using cuda::Driver;

class HardwareDevice final : public GpuDevice {
 public:
  HardwareDevice() : card_(gpu_tests::card()), driver_(*card_.driver) {
    card_.use();
    create_stream();
  }
  // Kernel errors are repeated by every later call; they were thrown when the host waited.
  ~HardwareDevice() override {
    for (const cuda::Module module : modules_) driver_.unload_module(module);
    for (const cuda::Event event : events_) driver_.destroy_event(event);
    for (const cuda::Stream stream : streams_) driver_.destroy_stream(stream);
    for (const cuda::Pointer address : allocations_) driver_.free(address);
  }
  HardwareDevice(const HardwareDevice&) = delete;
  HardwareDevice& operator=(const HardwareDevice&) = delete;

  bool runs(std::string_view target) const override {
    if (!target.starts_with("sm_")) return false;
    const std::string_view number = target.substr(3);
    int capability = 0;
    const char* end = std::from_chars(number.data(), number.data() + number.size(), capability).ptr;
    const bool exact = end != number.data() + number.size();  // the "a" of "90a"
    return exact ? capability == card_.capability : capability <= card_.capability;
  }

  KernelId load(std::string_view text, const std::string& file, const std::string& name) override {
    const std::string image(text);
    std::array<char, 8192> log{};
    std::array<cuda::JitOption, 2> options = {cuda::kErrorLog, cuda::kErrorLogBytes};
    std::array<void*, 2> values = {log.data(), reinterpret_cast<void*>(log.size())};
    cuda::Module module = nullptr;
    const cuda::Result result = driver_.load_module(&module, image.c_str(), 2, options.data(), values.data());
    const std::string_view why = log.data();
    if (result == cuda::kNoBinary || why.find(".target") != why.npos ||
        why.find("Unsupported .version") != why.npos)
      throw Unsupported(fmt::format("{}: {}", file, why));
    if (!why.empty()) throw std::runtime_error(fmt::format("[gpu] {}: {}", file, why));
    check(result, "cuModuleLoadDataEx");
    modules_.push_back(module);
    cuda::Function function = nullptr;
    check(driver_.function(&function, module, name.c_str()), "cuModuleGetFunction");
    functions_.push_back(function);
    return functions_.size() - 1;
  }

  uint64_t allocate(uint64_t bytes, const std::string&) override {
    cuda::Pointer address = 0;
    check(driver_.allocate(&address, std::max<uint64_t>(bytes, 1)), "cuMemAlloc");
    allocations_.push_back(address);
    return address;
  }
  void free(uint64_t address) override {
    std::erase(allocations_, address);
    check(driver_.free(address), "cuMemFree");
  }
  // Uses a stream of the device: copies without one go to the null stream, may return before their bytes have
  // arrived, and are not ordered with non-blocking streams.
  void write(uint64_t address, const void* from, uint64_t bytes) override {
    synchronize();
    if (bytes > 0) copy_in(address, from, bytes, 1);
    synchronize(1);
  }
  void read(uint64_t address, void* to, uint64_t bytes) override {
    synchronize();
    if (bytes > 0) copy_out(to, address, bytes, 1);
    synchronize(1);
  }
  void copy_in(uint64_t to, const void* from, uint64_t bytes, StreamId stream) override {
    check(driver_.copy_to_device_async(to, from, bytes, at(stream)), "cuMemcpyHtoDAsync");
  }
  void copy_out(void* to, uint64_t from, uint64_t bytes, StreamId stream) override {
    check(driver_.copy_to_host_async(to, from, bytes, at(stream)), "cuMemcpyDtoHAsync");
  }
  void copy(uint64_t to, uint64_t from, uint64_t bytes, StreamId stream) override {
    check(driver_.copy_async(to, from, bytes, at(stream)), "cuMemcpyDtoDAsync");
  }
  void fill(uint64_t to, std::byte value, uint64_t bytes, StreamId stream) override {
    check(driver_.fill_async(to, std::to_integer<unsigned char>(value), bytes, at(stream)),
          "cuMemsetD8Async");
  }

  void launch_arguments(KernelId kernel, const LaunchShape& shape,
                        std::span<const Argument> arguments) override {
    std::vector<void*> values;
    for (const Argument& argument : arguments) values.push_back(const_cast<void*>(argument.value));
    const cuda::Function function = functions_.at(kernel);
    const auto shared = static_cast<unsigned>(shape.shared_bytes);
    if (shared > 0) {
      check(driver_.set_function_attribute(function, cuda::kMaxDynamicSharedBytes, static_cast<int>(shared)),
            "cuFuncSetAttribute");
    }
    check(driver_.launch(function, shape.grid.x, shape.grid.y, shape.grid.z, shape.block.x, shape.block.y,
                         shape.block.z, shared, at(shape.stream), values.data(), nullptr),
          "cuLaunchKernel");
  }

  StreamId create_stream() override {
    cuda::Stream stream = nullptr;
    check(driver_.create_stream(&stream, cuda::kNonBlockingStream), "cuStreamCreate");
    streams_.push_back(stream);
    return static_cast<StreamId>(streams_.size());
  }
  EventId create_event() override {
    cuda::Event event = nullptr;
    check(driver_.create_event(&event, cuda::kEventWithoutTiming), "cuEventCreate");
    events_.push_back(event);
    return static_cast<EventId>(events_.size() - 1);
  }
  void record(EventId event, StreamId stream) override {
    check(driver_.record_event(events_.at(event), at(stream)), "cuEventRecord");
  }
  void wait(StreamId stream, EventId event) override {
    check(driver_.wait_event(at(stream), events_.at(event), 0), "cuStreamWaitEvent");
  }
  void synchronize(StreamId stream) override {
    check(driver_.synchronize_stream(at(stream)), "cuStreamSynchronize");
  }
  void synchronize() override {
    for (StreamId stream = 1; stream <= streams_.size(); ++stream) synchronize(stream);
  }

 private:
  void check(cuda::Result result, const char* what) const { driver_.check(result, what); }
  cuda::Stream at(StreamId stream) const { return streams_.at(stream - 1); }

  const Card& card_;
  const Driver& driver_;
  std::vector<cuda::Module> modules_;
  std::vector<cuda::Function> functions_;
  std::vector<cuda::Stream> streams_;  // StreamId 1, 2, …
  std::vector<cuda::Event> events_;
  std::vector<cuda::Pointer> allocations_;
};

}  // namespace

std::unique_ptr<GpuDevice> make_hardware() {
  return std::make_unique<HardwareDevice>();
}

}  // namespace strata::gpu_tests
