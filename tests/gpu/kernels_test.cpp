// Kernels that nvcc compiled at build time (kernels/samples.cu), for each architecture, against plain C++.
#include <gtest/gtest.h>

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "reference.h"
#include "snippet.h"

namespace strata::gpu_tests {
namespace {

std::string ptx_of(const std::string& architecture) {
  const char* folder = std::getenv("STRATA_GPU_KERNELS");
  std::ifstream file(
      fmt::format("{}/samples_{}.ptx", folder == nullptr ? STRATA_GPU_SAMPLES : folder, architecture));
  return {std::istreambuf_iterator<char>(file), {}};
}

class PtxKernels : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    text_ = ptx_of(GetParam());
    if (text_.empty()) GTEST_SKIP() << "nvcc was not found when this was built: no PTX for " << GetParam();
    device_ = make_device({.seed = 3});
    if (!device_->runs(GetParam())) GTEST_SKIP() << "this GPU does not run code for " << GetParam();
  }
  KernelId kernel(const char* name) {
    return device_->load(text_, fmt::format("samples_{}.ptx", GetParam()), name);
  }
  // For tests of the executor's checks.
  const Kernel& kernel(Device& device, const char* name) {
    return device.load(text_, fmt::format("samples_{}.ptx", GetParam())).kernel(name);
  }
  std::string text_;
  std::unique_ptr<GpuDevice> device_;
};

std::vector<float> numbers(size_t n, uint32_t seed) {
  std::vector<float> values(n);
  for (float& value : values) {
    seed = seed * 1664525 + 1013904223;
    value = static_cast<float>(seed >> 8) / static_cast<float>(1 << 23) - 1;
  }
  return values;
}

template <typename D, typename T>
uint64_t upload(D& device, const std::vector<T>& values, const char* name) {
  const uint64_t address = device.allocate(values.size() * sizeof(T), name);
  device.write(address, values.data(), values.size() * sizeof(T));
  return address;
}
template <typename T>
std::vector<T> download(GpuDevice& device, uint64_t address, size_t n) {
  std::vector<T> values(n);
  device.read(address, values.data(), n * sizeof(T));
  return values;
}

TEST_P(PtxKernels, VectorAdd) {
  GpuDevice& device = *device_;
  const int n = 1000;
  const std::vector<float> a = numbers(1000, 1), b = numbers(1000, 2);
  const uint64_t out = device.allocate(4000, "out");
  const uint64_t x = upload(device, a, "a"), y = upload(device, b, "b");
  device.launch(kernel("vector_add"), {.grid = {4}, .block = {256}}, out, x, y, n);
  const std::vector<float> sum = download<float>(device, out, 1000);
  for (size_t i = 0; i < 1000; ++i) EXPECT_EQ(sum[i], a[i] + b[i]);
}

TEST_P(PtxKernels, OneElementTooManyIsFound) {
  Device device;
  const std::vector<float> in = numbers(1000, 1);
  const uint64_t out = device.allocate(4000, "out"), x = upload(device, in, "in");
  device.launch(kernel(device, "vector_add"), {.grid = {4}, .block = {256}}, out, x, x, 1001);
  EXPECT_THROW(device.synchronize(), Violation);
}

TEST_P(PtxKernels, Reduction) {
  GpuDevice& device = *device_;
  const int n = 5000;
  const std::vector<float> in = numbers(5000, 3);
  const uint64_t x = upload(device, in, "in");
  const uint64_t out = device.allocate(16, "out");
  device.launch(kernel("reduce_sum"), {.grid = {4}, .block = {256}}, out, x, n);
  double expected = 0, sum = 0;
  for (const float value : in) expected += value;
  for (const float value : download<float>(device, out, 4)) sum += value;
  EXPECT_NEAR(sum, expected, 1e-3);
}

TEST_P(PtxKernels, MissingBarrierIsFound) {
  for (uint64_t seed = 1; seed < 5; ++seed) {
    Device device({.seed = seed});
    const uint64_t x = upload(device, numbers(5000, 3), "in");
    const uint64_t out = device.allocate(16, "out");
    device.launch(kernel(device, "reduce_sum_without_barrier"), {.grid = {4}, .block = {256}}, out, x, 5000);
    try {
      device.synchronize();
      ADD_FAILURE() << "not found with seed " << seed;
    } catch (const Violation& violation) {
      EXPECT_EQ(violation.fault(), Fault::kRace) << violation.what();
      EXPECT_EQ(violation.details().source_file, "samples.cu") << violation.what();
      EXPECT_NE(violation.details().allocation.find("part"), std::string::npos) << violation.what();
    }
  }
}

TEST_P(PtxKernels, Softmax) {
  GpuDevice& device = *device_;
  const int rows = 12, columns = 77;
  std::vector<float> in = numbers(12 * 77, 4);
  for (float& value : in) value *= 10;
  const uint64_t x = upload(device, in, "in");
  const uint64_t out = device.allocate(in.size() * 4, "out");
  device.launch(kernel("softmax_rows"), {.grid = {3}, .block = {128}}, out, x, columns);
  const std::vector<float> result = download<float>(device, out, in.size());
  for (int row = 0; row < rows; ++row) {
    const float* from = in.data() + row * columns;
    double sum = 0;
    const double most = *std::max_element(from, from + columns);
    for (int c = 0; c < columns; ++c) sum += std::exp(from[c] - most);
    for (int c = 0; c < columns; ++c)
      EXPECT_NEAR(result[static_cast<size_t>(row * columns + c)], std::exp(from[c] - most) / sum, 1e-6);
  }
}

TEST_P(PtxKernels, MathFunctions) {
  GpuDevice& device = *device_;
  const int n = 500;
  std::vector<float> in = numbers(500, 9);
  for (float& value : in) value *= 6;
  const uint64_t x = upload(device, in, "in");
  const uint64_t out = device.allocate(500 * 20 * 4, "out");
  device.launch(kernel("math_functions"), {.grid = {4}, .block = {128}}, out, x, n);
  const std::vector<float> result = download<float>(device, out, 500 * 20);
  for (int i = 0; i < n; ++i) {
    const float f = in[static_cast<size_t>(i)];
    const double v = f;
    const float scaled = f * 1e5f, tenfold = f * 10, hundredfold = f * 100;
    const auto large = static_cast<int64_t>(f * 1e6f);
    const int64_t parts = large / 77 + large % 77;
    const double expected[20] = {
        std::sin(v),
        std::cos(static_cast<double>(scaled)),
        std::exp(v),
        std::log(std::fabs(v)),
        std::pow(std::fabs(v), static_cast<double>(1.7f)),
        std::tanh(v),
        std::erf(v),
        std::fmod(hundredfold, 7.3f),
        std::cbrt(v),
        std::atan2(v, static_cast<double>(0.3f)),
        std::log1p(std::fabs(v)),
        std::expm1(v),
        std::sqrt(std::fabs(v)) / static_cast<double>(f + 3),
        std::nearbyint(tenfold) + std::floor(tenfold) * 100 + std::ceil(tenfold) * 10000,
        std::exp(v) / 3,
        std::sin(v * 1000),
        static_cast<double>(parts),
        static_cast<double>(__builtin_popcount(static_cast<unsigned>(bits(f))) +
                            (i == 0 ? 32 : __builtin_clz(static_cast<unsigned>(i))) + __builtin_ffs(i)),
        std::lgamma(std::fabs(v) + 0.5),
        v};
    for (size_t k = 0; k < 20; ++k) {
      EXPECT_NEAR(result[static_cast<size_t>(i) * 20 + k], expected[k],
                  3e-6 * std::max(1.0, std::fabs(expected[k])))
          << "function " << k << " of " << f;
    }
  }
}

size_t count_of(int rows, int columns) {
  return static_cast<size_t>(rows) * static_cast<size_t>(columns);
}

struct Gemm {
  int m, n, k;
  std::vector<uint16_t> a, b;
  Gemm(int m_, int n_, int k_) : m(m_), n(n_), k(k_) {
    for (const float value : numbers(count_of(m, k), 5))
      a.push_back(static_cast<uint16_t>(small_bits(value, kBf16Format, 'n')));
    for (const float value : numbers(count_of(k, n), 6))
      b.push_back(static_cast<uint16_t>(small_bits(value, kBf16Format, 'n')));
  }
  // Returns the address of the result.
  template <typename D, typename K>
  uint64_t launch(D& device, const K& kernel) const {
    const uint64_t x = upload(device, a, "a"), y = upload(device, b, "b");
    const uint64_t out = device.allocate(static_cast<uint64_t>(m * n) * 4, "c");
    device.launch(kernel,
                  {.grid = {static_cast<unsigned>((n + 63) / 64), static_cast<unsigned>((m + 63) / 64), 1},
                   .block = {128}},
                  out, x, y, m, n, k);
    return out;
  }
  // The largest error of the kernel compared with sums in double precision.
  double error(GpuDevice& device, KernelId kernel) const {
    const std::vector<float> c = download<float>(device, launch(device, kernel), count_of(m, n));
    double worst = 0;
    for (int row = 0; row < m; ++row) {
      for (int column = 0; column < n; ++column) {
        double sum = 0;
        for (int i = 0; i < k; ++i)
          sum += small_value(a[count_of(row, k) + static_cast<size_t>(i)], kBf16Format) *
                 small_value(b[count_of(i, n) + static_cast<size_t>(column)], kBf16Format);
        worst = std::max(worst, std::fabs(sum - c[count_of(row, n) + static_cast<size_t>(column)]));
      }
    }
    return worst;
  }
};

TEST_P(PtxKernels, GemmOfTensorCores) {
  const KernelId gemm = kernel("gemm_bf16");
  for (const Gemm& problem : {Gemm(64, 64, 64), Gemm(70, 72, 88), Gemm(5, 8, 8)})
    EXPECT_LT(problem.error(*device_, gemm), 1e-4);
  EXPECT_GT(Gemm(64, 64, 64).error(*device_, kernel("gemm_bf16_swapped")), 0.1);
}

TEST_P(PtxKernels, MissingWaitIsFound) {
  Device device;
  try {
    Gemm(64, 64, 96).launch(device, kernel(device, "gemm_bf16_early"));
    device.synchronize();
    FAIL();
  } catch (const Violation& violation) {
    EXPECT_EQ(violation.fault(), Fault::kPendingCopy) << violation.what();
    EXPECT_NE(violation.details().allocation.find("left"), std::string::npos) << violation.what();
  }
}

INSTANTIATE_TEST_SUITE_P(Architectures, PtxKernels, ::testing::Values("sm_80", "sm_90a", "sm_100a"),
                         [](const auto& one) { return std::string(one.param); });

// Prints the execution speed; asserts nothing, since machines differ.
TEST(PtxSpeed, InstructionsPerSecond) {
  const auto measure = [](const char* name, const std::string& loop, int rounds) {
    Device device;
    const Module& module = device.load(
        kernel_text(fmt::format("mov.u32 %r0, 0;\nmov.f32 %f1, 0f3F800000;\nmov.f32 %f2, "
                                "0f3F7FFF00;\nmov.f32 %f3, 0f3F000000;\nLOOP:\n{}"
                                "add.s32 %r0, %r0, 1;\nsetp.lt.s32 %p1, %r0, {};\n@%p1 bra LOOP;\n",
                                loop, rounds)),
        "speed.ptx");
    const uint64_t nothing = 0;
    const auto begin = std::chrono::steady_clock::now();
    device.launch(module.kernel("test"), {.block = {32}}, nothing, nothing);
    device.synchronize();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    fmt::print("{}: {:.1f} million warp instructions per second\n", name,
               static_cast<double>(device.counters().instructions) / seconds / 1e6);
  };
  std::string fma, mma;
  for (int n = 4; n < 12; ++n) fma += fmt::format("fma.rn.f32 %f{}, %f1, %f2, %f3;\n", n);
  for (int n = 0; n < 4; ++n)
    mma +=
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f4, %f5, %f6, %f7}, {%r1, %r2, %r3, %r4}, "
        "{%r5, %r6}, {%f4, %f5, %f6, %f7};\n";
  measure("fma loop", fma, 100'000);
  measure("mma loop", mma, 5'000);
}

}  // namespace
}  // namespace strata::gpu_tests
