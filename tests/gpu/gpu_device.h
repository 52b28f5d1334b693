// A device for numerical tests: the PTX executor, or a GPU with STRATA_GPU_TESTS=hardware. Tests of the
// executor's checks use ptx/device.h.
#pragma once

#include <initializer_list>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

#include "ptx/device.h"

namespace strata::gpu_tests {

using KernelId = size_t;

// The PTX is for another architecture, or has an instruction that the device does not support.
class Unsupported : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class GpuDevice {
 public:
  virtual ~GpuDevice() = default;

  // Whether the device runs PTX for `target` ("sm_90a").
  virtual bool runs(std::string_view target) const = 0;
  // Loads the kernel `name` of a PTX text. Throws Unsupported.
  virtual KernelId load(std::string_view text, const std::string& file, const std::string& name) = 0;

  // Host accesses, after all operations.
  virtual uint64_t allocate(uint64_t bytes, const std::string& name) = 0;
  virtual void free(uint64_t address) = 0;
  virtual void write(uint64_t address, const void* from, uint64_t bytes) = 0;
  virtual void read(uint64_t address, void* to, uint64_t bytes) = 0;

  // Stream operations; stream 1 always exists.
  virtual void copy_in(uint64_t to, const void* from, uint64_t bytes, StreamId stream) = 0;
  virtual void copy_out(void* to, uint64_t from, uint64_t bytes, StreamId stream) = 0;
  virtual void copy(uint64_t to, uint64_t from, uint64_t bytes, StreamId stream) = 0;
  virtual void fill(uint64_t to, std::byte value, uint64_t bytes, StreamId stream) = 0;
  virtual void launch_arguments(KernelId kernel, const LaunchShape& shape,
                                std::span<const Argument> arguments) = 0;
  template <typename... P>
  void launch(KernelId kernel, const LaunchShape& shape, const P&... params) {
    launch_arguments(kernel, shape, std::initializer_list<Argument>{Argument{&params, sizeof params}...});
  }

  virtual StreamId create_stream() = 0;
  virtual EventId create_event() = 0;
  virtual void record(EventId event, StreamId stream) = 0;
  virtual void wait(StreamId stream, EventId event) = 0;
  virtual void synchronize(StreamId stream) = 0;
  virtual void synchronize() = 0;
};

std::unique_ptr<GpuDevice> make_executor(const DeviceOptions& options = {});
// Throws std::runtime_error without a driver or GPU.
std::unique_ptr<GpuDevice> make_hardware();

// Selected by STRATA_GPU_TESTS: "executor" (the default) or "hardware".
bool tests_run_on_hardware();
std::unique_ptr<GpuDevice> make_device(const DeviceOptions& options = {});

}  // namespace strata::gpu_tests
