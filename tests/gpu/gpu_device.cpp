#include "gpu_device.h"

#include <fmt/core.h>

#include <cstdlib>
#include <vector>

namespace strata::gpu_tests {
namespace {

class ExecutorDevice final : public GpuDevice {
 public:
  explicit ExecutorDevice(const DeviceOptions& options) : device_(options) {}

  bool runs(std::string_view) const override { return true; }
  KernelId load(std::string_view text, const std::string& file, const std::string& name) override {
    kernels_.push_back(&device_.load(text, file).kernel(name));
    return kernels_.size() - 1;
  }
  uint64_t allocate(uint64_t bytes, const std::string& name) override {
    return device_.allocate(bytes, name);
  }
  void free(uint64_t address) override { device_.free(address); }
  void write(uint64_t address, const void* from, uint64_t bytes) override {
    device_.synchronize();
    device_.write(address, from, bytes);
  }
  void read(uint64_t address, void* to, uint64_t bytes) override {
    device_.synchronize();
    device_.read(address, to, bytes);
  }
  void copy_in(uint64_t to, const void* from, uint64_t bytes, StreamId stream) override {
    device_.copy_in(to, from, bytes, stream);
  }
  void copy_out(void* to, uint64_t from, uint64_t bytes, StreamId stream) override {
    device_.copy_out(to, from, bytes, stream);
  }
  void copy(uint64_t to, uint64_t from, uint64_t bytes, StreamId stream) override {
    device_.copy(to, from, bytes, stream);
  }
  void fill(uint64_t to, std::byte value, uint64_t bytes, StreamId stream) override {
    device_.fill(to, value, bytes, stream);
  }
  void launch_arguments(KernelId kernel, const LaunchShape& shape,
                        std::span<const Argument> arguments) override {
    device_.launch_arguments(*kernels_.at(kernel), shape, arguments);
  }
  StreamId create_stream() override { return device_.create_stream(); }
  EventId create_event() override { return device_.create_event(); }
  void record(EventId event, StreamId stream) override { device_.record(event, stream); }
  void wait(StreamId stream, EventId event) override { device_.wait(stream, event); }
  void synchronize(StreamId stream) override { device_.synchronize(stream); }
  void synchronize() override { device_.synchronize(); }

 private:
  Device device_;
  std::vector<const Kernel*> kernels_;
};

}  // namespace

std::unique_ptr<GpuDevice> make_executor(const DeviceOptions& options) {
  return std::make_unique<ExecutorDevice>(options);
}

bool tests_run_on_hardware() {
  const char* choice = std::getenv("STRATA_GPU_TESTS");
  const std::string_view name = choice == nullptr ? "executor" : choice;
  if (name != "executor" && name != "hardware")
    throw std::invalid_argument(fmt::format("STRATA_GPU_TESTS={}: expected executor or hardware", name));
  return name == "hardware";
}

std::unique_ptr<GpuDevice> make_device(const DeviceOptions& options) {
  return tests_run_on_hardware() ? make_hardware() : make_executor(options);
}

}  // namespace strata::gpu_tests
