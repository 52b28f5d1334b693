// A device for tests of numbers: the PTX executor, or a card where STRATA_GPU_TESTS=hardware is set. Tests of
// what the executor checks use ptx/device.h.
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

// The text is for another architecture, or has an instruction that the device does not have.
class Unsupported : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class GpuDevice {
 public:
  virtual ~GpuDevice() = default;

  // Whether PTX for `target` ("sm_90a") runs on it.
  virtual bool runs(std::string_view target) const = 0;
  // The kernel `name` of a PTX text. Throws Unsupported.
  virtual KernelId load(std::string_view text, const std::string& file, const std::string& name) = 0;

  // Accesses of the host, after all operations.
  virtual uint64_t allocate(uint64_t bytes, const std::string& name) = 0;
  virtual void free(uint64_t address) = 0;
  virtual void write(uint64_t address, const void* from, uint64_t bytes) = 0;
  virtual void read(uint64_t address, void* to, uint64_t bytes) = 0;

  // Operations of a stream; stream 1 always exists.
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
// Throws std::runtime_error where there is no driver or no card.
std::unique_ptr<GpuDevice> make_hardware();

// The device that STRATA_GPU_TESTS names: "executor" (also where it is not set) or "hardware".
bool tests_run_on_hardware();
std::unique_ptr<GpuDevice> make_device(const DeviceOptions& options = {});

}  // namespace strata::gpu_tests
