#include "hardware/device_spec.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "fixtures/scratch_folder.h"

namespace strata::hardware {
namespace {

DeviceSpec example() {
  DeviceSpec spec;
  spec.name = "Example CPU";
  spec.isa.avx2 = true;
  spec.cores = 2;
  spec.threads = 2;
  spec.gemm_flops[Precision::kFp32] = 200e9;
  spec.memory_bytes_per_s = 20e9;
  spec.rates = {{"attention", "f32", 100e9, 0.0}, {"rms_norm", "f32", 0.0, 40e9}};
  return spec;
}

TEST(Bf16, MeasuredRatesTakePrecedenceOverInstructionSets) {
  DeviceSpec spec = example();
  EXPECT_FALSE(bf16_is_fast(spec));
  spec.isa.avx512_bf16 = true;
  EXPECT_TRUE(bf16_is_fast(spec));
  spec.gemm_flops[Precision::kBf16] = 210e9;
  EXPECT_FALSE(bf16_is_fast(spec));
  spec.gemm_flops[Precision::kBf16] = 400e9;
  EXPECT_TRUE(bf16_is_fast(spec));
}

TEST(InstructionSets, AreLimitedInOrder) {
  const IsaFlags all{.avx2 = true, .avx512 = true, .avx512_bf16 = true, .amx = true, .neon = true};
  EXPECT_EQ(limited_to(all, "baseline").str(), "neon");
  EXPECT_EQ(limited_to(all, "avx2").str(), "avx2+neon");
  EXPECT_EQ(limited_to(all, "avx512").str(), "avx2+avx512+neon");
  EXPECT_EQ(limited_to(all, "avx512_bf16").str(), "avx2+avx512+avx512_bf16+neon");
  EXPECT_EQ(limited_to(all, "amx"), all);
  const IsaFlags few{.avx2 = true};
  EXPECT_EQ(limited_to(few, "amx"), few) << "a limit adds nothing";
  EXPECT_THROW(limited_to(all, "avx"), ConfigError);
  EXPECT_THROW(limited_to(all, ""), ConfigError);
}

TEST(Json, RoundTripKeepsEverything) {
  DeviceSpec spec = example();
  spec.library = "kernels 1";
  spec.l3_bytes = int64_t{1} << 40;
  spec.source = "measured";
  spec.date = "2026-01-31T12:34:56Z";
  spec.isa.amx = true;
  spec.exchange_bytes_per_s = 20e9;
  spec.exchange_cold_bytes_per_s = 9e9;
  spec.rates.push_back({"linear_grad_weight", "f32", 100e9, 2e9, true, true});
  EXPECT_EQ(device_spec_from_json(to_json(spec)), spec);
}

TEST(Json, InvalidFilesAreDataErrors) {
  EXPECT_THROW(device_spec_from_json("{"), DataError);
  EXPECT_THROW(device_spec_from_json("{}"), DataError);
  // Each error names its field.
  const std::pair<const char*, const char*> invalid[] = {
      {R"({"name": "x", "cores": ""})", "cores: found \"\", expected a whole number"},
      {R"({"name": "x", "cores": -1})", "cores: found -1"},
      {R"({"name": "x", "cores": 3000000000})", "cores: found 3000000000"},
      {R"({"name": 3})", "name: found 3, expected text"},
      {R"({"cores": 3})", "name: found none"},
      {R"([])", "all of it: found []"},
      {R"({"name": "x", "isa": {"amx": 1}})", "isa.amx: found 1, expected true or false"},
      {R"({"name": "x", "gemm_flops": {"bf16": -2}})", "gemm_flops.bf16: found -2"},
      {R"({"name": "x", "peak_flops": 4})", "peak_flops: found 4, expected an object"},
      {R"({"name": "x", "rates": {}})", "rates: found {}, expected a list"},
      {R"({"name": "x", "rates": [{"family": "gemm"}, {"cold": 0}]})", "rates[1].cold: found 0"},
  };
  for (const auto& [text, expected] : invalid) {
    try {
      device_spec_from_json(text);
      ADD_FAILURE() << text;
    } catch (const DataError& error) {
      EXPECT_NE(std::string(error.what()).find(expected), std::string::npos) << error.what();
    }
  }
}

TEST(Json, AbsentFieldsKeepTheirDeinvalid) {
  DeviceSpec expected;
  expected.name = "a chip";
  expected.kind = "gpu";
  expected.peak_flops[Precision::kFp8] = 1979e12;
  EXPECT_EQ(device_spec_from_json(R"({"name": "a chip", "kind": "gpu", "peak_flops": {"fp8": 1979e12}})"),
            expected);
}

TEST(Detect, DescribesThisMachine) {
  const DeviceSpec spec = detect_cpu(3);
  EXPECT_FALSE(spec.name.empty());
  EXPECT_GE(spec.cores, 1);
  EXPECT_EQ(spec.threads, 3);
  EXPECT_GT(spec.memory_bytes, int64_t{1} << 26);
#if defined(__x86_64__)
  IsaFlags here{.avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"),
                .avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw")};
  if (const char* const limit = std::getenv(kIsaLimitVariable)) here = limited_to(here, limit);
  EXPECT_EQ(spec.isa.avx2, here.avx2);
  EXPECT_EQ(spec.isa.avx512, here.avx512);
#endif
}

// Without /proc and /sys; caches from a made-up /sys if it has any.
TEST(Detect, NeedsNoFiles) {
  const ScratchFolder root;
  const DeviceSpec spec = detect_cpu(3, root.path()), here = detect_cpu(3);
  EXPECT_EQ(spec.name, here.name);
  EXPECT_EQ(spec.isa, here.isa);
  EXPECT_GE(spec.cores, 1);
  EXPECT_GE(spec.l1_bytes, 8 << 10);
  EXPECT_GE(spec.l2_bytes, 128 << 10);
  EXPECT_GT(spec.memory_bytes, int64_t{1} << 26);
  const auto cache = [&](int index, const std::string& level, const std::string& type,
                         const std::string& size) {
    const Path folder = root / ("sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index));
    std::filesystem::create_directories(folder);
    std::ofstream(folder / "level") << level << "\n";
    std::ofstream(folder / "type") << type << "\n";
    std::ofstream(folder / "size") << size << "\n";
  };
  cache(0, "1", "Instruction", "64K");
  cache(1, "1", "Data", "48K");
  cache(2, "2", "Unified", "3M");
  const DeviceSpec described = detect_cpu(3, root.path());
  EXPECT_EQ(described.l1_bytes, 48 << 10);
  EXPECT_EQ(described.l2_bytes, 3 << 20);
  EXPECT_EQ(described.l3_bytes, spec.l3_bytes) << "not in /sys";
}

class Cache : public testing::Test {
 protected:
  void SetUp() override {
    folder_ =
        std::filesystem::path(testing::TempDir()) /
        (std::string("strata_device_cache_") + testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::remove_all(folder_);
    setenv("XDG_CACHE_HOME", folder_.c_str(), 1);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::filesystem::path folder_;
};

TEST_F(Cache, StoresMeasurementsOnlyOfThisMachine) {
  DeviceSpec measured = example();
  measured.source = "measured";
  DeviceSpec asked = example();
  asked.gemm_flops[Precision::kFp32] = 0;
  asked.rates.clear();
  EXPECT_FALSE(load_cached_device(asked));
  ASSERT_TRUE(save_cached_device(posix_file_system(), measured));
  EXPECT_TRUE(load_cached_device(asked));
  EXPECT_EQ(asked, measured);
  for (auto change :
       {+[](DeviceSpec& s) { s.threads = 1; }, +[](DeviceSpec& s) { s.name = "Other"; },
        +[](DeviceSpec& s) { s.isa.avx512 = true; }, +[](DeviceSpec& s) { s.library = "other"; }}) {
    DeviceSpec other = example();
    change(other);
    EXPECT_FALSE(load_cached_device(other));
  }
}

TEST_F(Cache, TruncatedFilesAreMeasuredAgain) {
  DeviceSpec spec = example();
  ASSERT_TRUE(save_cached_device(posix_file_system(), spec));
  std::filesystem::resize_file(device_cache_path(spec), 40);
  EXPECT_FALSE(load_cached_device(spec));
}

TEST_F(Cache, UnwritableFolderIsNotAnError) {
  std::filesystem::create_directories(folder_);
  write_file_atomically(posix_file_system(), folder_ / "strata", "a file where the folder should be");
  EXPECT_FALSE(save_cached_device(posix_file_system(), example()));
}

}  // namespace
}  // namespace strata::hardware
