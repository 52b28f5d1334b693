#include "kernels/kernel_test.h"

#include <fmt/core.h>

#include <fstream>
#include <iterator>

namespace strata::gpu_tests {
namespace {

std::string text_of(const std::string& module, const std::string& architecture) {
  std::ifstream file(fmt::format("{}/{}_{}.ptx", STRATA_GPU_KERNELS, module, architecture));
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

std::vector<double> random_values(size_t n, uint32_t seed) {
  std::vector<double> values(n);
  seed = seed * 2654435761u + 12345;
  for (double& value : values) {
    seed = seed * 1664525 + 1013904223;
    value = static_cast<double>(seed >> 8) / static_cast<double>(1 << 23) - 1;
  }
  return values;
}
double rounded_to(DType dtype, double value) {
  const auto narrow = static_cast<float>(value);
  return dtype == DType::kBF16 ? static_cast<float>(BF16(narrow)) : narrow;
}
std::vector<double> rounded_to(DType dtype, std::vector<double> values) {
  for (double& value : values) value = rounded_to(dtype, value);
  return values;
}

void KernelTest::SetUp() {
  if (text_of("experts_sort", GetParam()).empty())
    GTEST_SKIP() << "nvcc was not found when this was built: no PTX for " << GetParam();
  restart();
}
void KernelTest::restart(uint64_t seed) {
  modules_.clear();
  device_ = std::make_unique<Device>(DeviceOptions{.seed = seed});
}

const Kernel& KernelTest::kernel(const gpu::KernelLaunch& call) {
  const Module*& module = modules_[call.module];
  if (module == nullptr) module = &device_->load(text_of(call.module, GetParam()), call.module + ".ptx");
  return module->kernel(call.kernel);
}

void* KernelTest::upload(DType dtype, const std::vector<double>& values, const char* name) {
  std::vector<float> wide;
  std::vector<BF16> narrow;
  for (const double value : values) {
    wide.push_back(static_cast<float>(value));
    narrow.emplace_back(static_cast<float>(value));
  }
  const bool bf16 = dtype == DType::kBF16;
  void* const to = output(dtype, std::ssize(values), name);
  device_->write(reinterpret_cast<uint64_t>(to), bf16 ? static_cast<const void*>(narrow.data()) : wide.data(),
                 values.size() * static_cast<size_t>(size_of(dtype)));
  return to;
}
void* KernelTest::upload(const std::vector<int32_t>& values, const char* name) {
  int32_t* const to = output_of<int32_t>(std::ssize(values), name);
  device_->write(reinterpret_cast<uint64_t>(to), values.data(), values.size() * 4);
  return to;
}
void* KernelTest::output(DType dtype, int64_t n, const char* name) {
  return pointer_to(device_->allocate(static_cast<uint64_t>(n * size_of(dtype)), name));
}

std::vector<double> KernelTest::download(DType dtype, const void* from, int64_t n) {
  std::vector<double> values;
  std::vector<std::byte> bytes(static_cast<size_t>(n * size_of(dtype)));
  device_->read(reinterpret_cast<uint64_t>(from), bytes.data(), bytes.size());
  for (size_t i = 0; i < static_cast<size_t>(n); ++i) {
    if (dtype == DType::kBF16) {
      values.push_back(static_cast<float>(reinterpret_cast<const BF16*>(bytes.data())[i]));
    } else if (dtype == DType::kF64) {
      values.push_back(reinterpret_cast<const double*>(bytes.data())[i]);
    } else if (dtype == DType::kI32) {
      values.push_back(reinterpret_cast<const int32_t*>(bytes.data())[i]);
    } else {
      values.push_back(reinterpret_cast<const float*>(bytes.data())[i]);
    }
  }
  return values;
}

void expect_near(const std::vector<double>& values, const std::vector<double>& expected, double tolerance,
                 double scale, const std::string& what) {
  ASSERT_EQ(values.size(), expected.size()) << what;
  double worst = 0;
  size_t at = 0, wrong = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const bool equal = values[i] == expected[i];  // infinities
    const double error =
        equal ? 0 : std::fabs(values[i] - expected[i]) / std::max(scale, std::fabs(expected[i]));
    if (!(error <= tolerance)) ++wrong;
    if (!(error <= worst)) worst = error, at = i;
  }
  EXPECT_EQ(wrong, 0u) << what << ": " << wrong << " of " << values.size() << " wrong; element " << at
                       << " is " << values[at] << ", expected " << expected[at];
}

}  // namespace strata::gpu_tests
