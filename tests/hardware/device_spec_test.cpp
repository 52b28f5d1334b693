#include "hardware/device_spec.h"

#include <gtest/gtest.h>

namespace strata::hardware {
namespace {

DeviceSpec example() {
  DeviceSpec spec;
  spec.name = "Example CPU";
  spec.isa.avx2 = true;
  spec.cores = 2;
  spec.threads = 2;
  spec.gemm_flops_f32 = 200e9;
  spec.memory_bytes_per_s = 20e9;
  spec.rates = {{"attention", "f32", 100e9, 0.0}, {"rms_norm", "f32", 0.0, 40e9}};
  return spec;
}

TEST(Roofline, TakesTheSlowerOfArithmeticAndMemory) {
  const DeviceSpec spec = example();
  EXPECT_DOUBLE_EQ(roofline_seconds(spec, "other", "f32", 200e9, 1.0), 1.0);
  EXPECT_DOUBLE_EQ(roofline_seconds(spec, "other", "f32", 1.0, 20e9), 1.0);
  EXPECT_DOUBLE_EQ(roofline_seconds(spec, "attention", "f32", 200e9, 0.0), 2.0);
  EXPECT_DOUBLE_EQ(roofline_seconds(spec, "rms_norm", "f32", 0.0, 40e9), 1.0);
  EXPECT_DOUBLE_EQ(roofline_seconds(DeviceSpec{}, "rms_norm", "f32", 1e9, 1e9), 0.0);
}

TEST(Bf16, MeasuredRatesDecideBeforeInstructionSets) {
  DeviceSpec spec = example();
  EXPECT_FALSE(bf16_is_fast(spec));
  spec.isa.avx512_bf16 = true;
  EXPECT_TRUE(bf16_is_fast(spec));
  spec.gemm_flops_bf16 = 210e9;
  EXPECT_FALSE(bf16_is_fast(spec));
  spec.gemm_flops_bf16 = 400e9;
  EXPECT_TRUE(bf16_is_fast(spec));
}

}  // namespace
}  // namespace strata::hardware
