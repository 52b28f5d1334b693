#include "kernels/cpu/measure.h"

#include <gtest/gtest.h>

#include "base/parallel.h"

namespace strata::cpu {
namespace {

TEST(Measure, MeasuresEverythingAndRestoresTheThreads) {
  const int before = compute_threads();
  const hardware::DeviceSpec spec = measure_device(1, 0.0);
  EXPECT_EQ(compute_threads(), before);
  EXPECT_EQ(spec.threads, 1);
  EXPECT_EQ(spec.source, "measured");
  EXPECT_FALSE(spec.date.empty());
  EXPECT_GT(spec.gemm_flops[hardware::Precision::kFp32], 0.0);
  EXPECT_GT(spec.gemm_flops[hardware::Precision::kBf16], 0.0);
  EXPECT_GT(spec.memory_bytes_per_s, 0.0);
  EXPECT_GT(spec.cache_bytes_per_s, 0.0);
  EXPECT_GT(spec.kept_bytes, 0);
}

TEST(Measure, ReportsThePeakGemm) {
  const PeakGemm peak = peak_gemm(DType::kF32);
  EXPECT_GT(peak.flops, 0.0);
  peak.run();
}

}  // namespace
}  // namespace strata::cpu
