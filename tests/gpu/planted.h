// Faults planted in kernels that ship, by edits of their PTX when the driver loads it, and in calls of the driver: each must
// be found and named by the twin, or show in the values. Without a plant the same runs are clean.
//
// A plant names lines of PTX by an expression. It tries one matching line after the other until the fault is found, so that
// it survives changes of the kernel; if no line matches, or none is found, the test fails.
#pragma once

#include <cmath>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>

#include "kernels/gpu/launch.h"
#include "twin/harness.h"

namespace strata::gpu_tests {

using cuda::Pointer;
using cuda::Result;

// A module's PTX without its other kernels, which would take most of the time to load.
inline std::string ptx_of(const std::string& module, const std::string& kernel) {
  std::ifstream file(std::string(STRATA_GPU_KERNELS) + "/" + module + "_sm_80.ptx");
  std::string text;
  bool skipped = false;
  for (std::string line; std::getline(file, line);) {
    if (line.find(".visible .entry ") != std::string::npos)
      skipped = line.find(" " + kernel + "(") == std::string::npos;
    if (!skipped) text += line + "\n";
    if (line.starts_with('}')) skipped = false;
  }
  return text;
}

inline std::vector<float> values_of(size_t n, uint32_t seed) {
  std::vector<float> values(n);
  for (float& value : values) {
    seed = seed * 1664525 + 1013904223;
    value = static_cast<float>(BF16(static_cast<float>(seed >> 8) / static_cast<float>(1 << 23) - 1));
  }
  return values;
}

struct Outcome {
  std::string violation;  // of the twin; empty if there is none
  double error = 0;       // the largest, relative to the largest value
};

class Bench : public TwinCard {
 public:
  explicit Bench(const std::string& settings) : TwinCard(settings), stream_(stream()) {}

  cuda::Stream first() const { return stream_; }
  template <typename T>
  T* upload(const std::vector<T>& values, cuda::Stream on = nullptr) const {
    const Pointer to = allocate(values.size() * sizeof(T));
    driver().copy_to_device_async(to, values.data(), values.size() * sizeof(T), on == nullptr ? stream_ : on);
    return reinterpret_cast<T*>(to);
  }
  BF16* upload_bf16(const std::vector<float>& values, cuda::Stream on = nullptr) const {
    std::vector<BF16> narrow;
    for (const float value : values) narrow.emplace_back(value);
    return upload(narrow, on);
  }
  template <typename T>
  T* output(size_t n) const {
    return reinterpret_cast<T*>(allocate(n * sizeof(T)));
  }
  template <typename Args>
  Result start(const gpu::KernelLaunch& call, Args args, cuda::Stream on = nullptr) {
    cuda::Function& loaded = functions_[call.kernel];
    if (loaded == nullptr) {
      loaded = function(ptx_of(call.module, call.kernel), call.kernel.c_str());
      if (call.shared_bytes > 48 * 1024)
        driver().set_function_attribute(loaded, cuda::kMaxDynamicSharedBytes,
                                        static_cast<int>(call.shared_bytes));
    }
    void* arguments[] = {&args};
    return driver().launch(loaded, call.grid_x, call.grid_y, call.grid_z, call.threads, 1, 1,
                           call.shared_bytes, on == nullptr ? stream_ : on, arguments, nullptr);
  }
  // Waits for everything and compares.
  template <typename T>
  Outcome outcome(const T* at, const std::vector<double>& expected) const {
    driver().synchronize();
    std::vector<T> found(expected.size());
    driver().copy_to_host_async(found.data(), reinterpret_cast<Pointer>(at), found.size() * sizeof(T),
                                stream_);
    Outcome result{.violation = twin().violation()};
    double scale = 0;
    for (const double value : expected) scale = std::max(scale, std::fabs(value));
    for (size_t n = 0; n < found.size(); ++n) {
      const double error = std::fabs(static_cast<double>(static_cast<float>(found[n])) - expected[n]) / scale;
      if (!(error <= result.error)) result.error = std::isnan(error) ? HUGE_VAL : error;
    }
    return result;
  }

 private:
  cuda::Stream stream_;
  std::map<std::string, cuda::Function> functions_;
};

using Subject = std::function<Outcome(const std::string&)>;
inline constexpr double kTolerance = 0.01;

class Planted : public testing::Test {
 protected:
  void SetUp() override {
    if (ptx_of("norm", "rms_norm_forward_bf16").empty())
      GTEST_SKIP() << "nvcc was not found when this was built";
  }
};

inline bool is_named(const Outcome& outcome, const std::vector<std::string>& kinds, const std::string& name) {
  if (kinds.empty()) return outcome.violation.empty() && !(outcome.error <= kTolerance);
  for (const std::string& kind : kinds)
    if (outcome.violation.starts_with("[" + kind + "]") && has(outcome.violation, name)) return true;
  return false;
}

// `kinds`: those of a violation that names the kernel and a source file; none: the values are wrong.
inline void expect_found(const Subject& subject, const std::string& kernel, const std::string& pattern,
                         const std::string& text, const std::vector<std::string>& kinds,
                         const std::string& source = "") {
  std::string others;
  for (int at = 1; at <= 60; ++at) {
    Outcome outcome;
    try {
      outcome = subject("edit=" + kernel + ":" + pattern + ":" + std::to_string(at) + ":" + text);
    } catch (const WorldError& error) {
      if (!has(error.what(), "the twin found")) throw;
      ASSERT_GT(at, 1) << "no place to plant the fault: " << error.what();
      break;
    }
    ASSERT_EQ(Twin().unused(), "") << "the kernel was not loaded";
    if (is_named(outcome, kinds, kernel) && (source.empty() || has(outcome.violation, "(" + source + ":")))
      return;
    others += "  line " + std::to_string(at) + ": " +
              (outcome.violation.empty() ? "error " + std::to_string(outcome.error) : outcome.violation) +
              "\n";
  }
  ADD_FAILURE() << "the fault in " << kernel << " was not found:\n" << others;
}

}  // namespace strata::gpu_tests
