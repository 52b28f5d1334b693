#include "kernels/cpu/measure.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "base/parallel.h"

namespace strata::cpu {
namespace {

TEST(Measure, GivesEveryFigureAndLeavesTheThreadsAlone) {
  const int before = compute_threads();
  int calls = 0;
  std::vector<FamilyProbe> probes;
  probes.push_back({"busy", DType::kF32, 1e12, 1.0, [&] { ++calls; }});
  probes.push_back({"moving", DType::kBF16, 1.0, 1e12, [&] { ++calls; }});
  const hardware::DeviceSpec spec = measure_device(1, 0.0, probes);
  EXPECT_EQ(compute_threads(), before);
  EXPECT_EQ(spec.threads, 1);
  EXPECT_EQ(spec.source, "measured");
  EXPECT_FALSE(spec.date.empty());
  EXPECT_GT(spec.gemm_flops_f32, 0.0);
  EXPECT_GT(spec.gemm_flops_bf16, 0.0);
  EXPECT_GT(spec.memory_bytes_per_s, 0.0);
  EXPECT_GT(spec.cache_bytes_per_s, 0.0);
  EXPECT_GE(calls, 4);
  ASSERT_EQ(spec.rates.size(), 2u);
  EXPECT_GT(spec.rates[0].flops_per_s, 0.0);
  EXPECT_EQ(spec.rates[0].bytes_per_s, 0.0);
  EXPECT_GT(spec.rates[1].bytes_per_s, 0.0);
  EXPECT_EQ(spec.rates[1].flops_per_s, 0.0);
}

TEST(Measure, GemmProbesRun) {
  for (const FamilyProbe& probe : gemm_probes(DType::kF32)) {
    EXPECT_GT(probe.flops, 0.0) << probe.family;
    EXPECT_GT(probe.bytes, 0.0) << probe.family;
    probe.run();
  }
}

TEST(Measure, ASecondAskingComesFromTheCache) {
  const auto folder = std::filesystem::path(testing::TempDir()) / "strata_measure_cache";
  std::filesystem::remove_all(folder);
  setenv("XDG_CACHE_HOME", folder.c_str(), 1);
  int made = 0;
  const auto probes = [&] {
    ++made;
    return std::vector<FamilyProbe>{};
  };
  const auto first = measured_device(posix_file_system(), 1, 0.0, probes);
  const auto second = measured_device(posix_file_system(), 1, 0.0, probes);
  EXPECT_EQ(made, 1);
  EXPECT_EQ(first, second);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace strata::cpu
