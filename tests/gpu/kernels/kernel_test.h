// Runs kernels of src/kernels/gpu in tests: fp32 and bf16 arrays in the executor's memory, launched as in
// launch.h. Outputs are uninitialized before a kernel runs: the executor fails a test that reads what no
// kernel wrote.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "kernels/gpu/launch.h"
#include "ptx/device.h"

namespace strata::gpu_tests {

// Uniform in [-1, 1).
std::vector<double> random_values(size_t n, uint32_t seed);
double rounded_to(DType dtype, double value);
std::vector<double> rounded_to(DType dtype, std::vector<double> values);

// One parameter: the architecture.
class KernelTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override;
  // A new device, with nothing loaded or allocated.
  void restart(uint64_t seed = 1);
  Device& device() { return *device_; }

  // Pointers for argument structs. Values must be exact in the dtype.
  void* upload(DType dtype, const std::vector<double>& values, const char* name = "");
  void* upload(const std::vector<int32_t>& values, const char* name = "");
  void* output(DType dtype, int64_t n, const char* name = "");
  template <typename T>
  T* output_of(int64_t n, const char* name = "") {
    return static_cast<T*>(pointer_to(device_->allocate(static_cast<uint64_t>(n) * sizeof(T), name)));
  }
  std::vector<double> download(DType dtype, const void* from, int64_t n);

  // The same of any type, without conversion. `skipped` elements come first, so that vectors may be unaligned.
  template <typename T>
  T* upload_all(const std::vector<T>& values, int64_t skipped = 0) {
    T* const to = output_of<T>(std::ssize(values) + skipped) + skipped;
    if (!values.empty())
      device_->write(reinterpret_cast<uint64_t>(to), values.data(), values.size() * sizeof(T));
    return to;
  }
  template <typename T>
  std::vector<T> read(const T* from, int64_t n) {
    std::vector<T> values(static_cast<size_t>(n));
    device_->read(reinterpret_cast<uint64_t>(from), values.data(), values.size() * sizeof(T));
    return values;
  }

  template <typename Args>
  void launch(const gpu::KernelLaunch& call, const Args& args) {
    device_->launch(kernel(call),
                    {.grid = {call.grid_x, call.grid_y, call.grid_z},
                     .block = {call.threads},
                     .shared_bytes = call.shared_bytes},
                    args);
    device_->synchronize();
  }

 private:
  const Kernel& kernel(const gpu::KernelLaunch& call);
  static void* pointer_to(uint64_t address) { return reinterpret_cast<void*>(address); }

  std::unique_ptr<Device> device_;
  std::map<std::string, const Module*> modules_;
};

// value − expected| ≤ tolerance · max(scale, |expected|) for all values, or one failure that names the worst.
void expect_near(const std::vector<double>& values, const std::vector<double>& expected, double tolerance,
                 double scale, const std::string& what);

// The suite name is followed by architectures; CMakeLists.txt compiles few kernels for others than sm_80.
#define STRATA_GPU_TESTS(SUITE, ...)                                             \
  INSTANTIATE_TEST_SUITE_P(Architectures, SUITE, ::testing::Values(__VA_ARGS__), \
                           [](const auto& one) { return std::string(one.param); })

}  // namespace strata::gpu_tests
