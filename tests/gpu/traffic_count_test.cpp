// Sectors and passes of kernels that were counted by hand.
#include <gtest/gtest.h>

#include <fmt/core.h>

#include "ptx/device.h"

namespace strata::gpu_tests {
namespace {

// One warp; %rd1: the parameter, %rd2: the lane, %r2: the lane's word of shared memory at `words` words a lane.
std::string kernel(const std::string& body, unsigned words = 1) {
  return fmt::format(R"(.version 8.0
.target sm_80
.address_size 64
.visible .entry count(.param .u64 at)
{{
  .shared .align 16 .b8 table[8192];
  .reg .b32 %r<9>;
  .reg .b64 %rd<9>;
  .reg .f32 %f<5>;
  ld.param.u64 %rd1, [at];
  mov.u32 %r1, %tid.x;
  cvt.u64.u32 %rd2, %r1;
  mov.u32 %r3, table;
  mad.lo.u32 %r2, %r1, {}, %r3;
  {}
  ret;
}}
)",
                     4 * words, body);
}

Traffic count(const std::string& text) {
  Device device({.traffic = true});
  const std::vector<std::byte> zeros(1 << 14);
  const uint64_t at = device.allocate(zeros.size(), "values");
  device.write(at, zeros.data(), zeros.size());
  device.launch(device.load(text, "count.ptx").kernel("count"), {.grid = {1}, .block = {32}}, at);
  device.synchronize();
  return device.traffic().at("count");
}

std::string at_lane(unsigned bytes) {
  return fmt::format("mad.lo.u64 %rd3, %rd2, {}, %rd1;\n", bytes);
}

TEST(Traffic, NeighboursFillSectors) {
  const Traffic one = count(kernel(at_lane(4) + "ld.global.u32 %r4, [%rd3];"));
  EXPECT_EQ(one.sectors, 4u);
  EXPECT_EQ(one.least_sectors, 4u);
  EXPECT_EQ(one.launches, 1u);
  EXPECT_EQ(one.threads, 32u);
}

TEST(Traffic, StridesMoveBytesThatNobodyUses) {
  const Traffic loads = count(kernel(at_lane(32) + "ld.global.u32 %r4, [%rd3];"));
  EXPECT_EQ(loads.sectors, 32u);
  EXPECT_EQ(loads.least_sectors, 4u);
  EXPECT_EQ(loads.excess.size(), 1u);
  // Both halves of each sector: the second store moves them again, a second load has them.
  const std::string both = at_lane(32) + "{0}.global.v4.f32 {1};\n{0}.global.v4.f32 {2};";
  const std::string value = "{%f1, %f2, %f3, %f4}";
  const Traffic halves =
      count(kernel(fmt::format(fmt::runtime(both), "ld", value + ", [%rd3]", value + ", [%rd3+16]")));
  EXPECT_EQ(halves.sectors, 32u);
  EXPECT_EQ(halves.least_sectors, 32u);
  const Traffic stores =
      count(kernel("mov.f32 %f1, 0f00000000; mov.f32 %f2, %f1; mov.f32 %f3, %f1; mov.f32 %f4, %f1;\n" +
                   fmt::format(fmt::runtime(both), "st", "[%rd3], " + value, "[%rd3+16], " + value)));
  EXPECT_EQ(stores.sectors, 64u);
  EXPECT_EQ(stores.least_sectors, 32u);
}

TEST(Traffic, LanesMeetInBanks) {
  for (const unsigned words : {1u, 2u, 3u, 32u, 33u}) {
    const Traffic one = count(kernel("st.shared.u32 [%r2], %r1;", words));
    EXPECT_EQ(one.passes, words == 2 ? 2u : words == 32 ? 32u : 1u) << words;
    EXPECT_EQ(one.least_passes, 1u) << words;
  }
  // All lanes read one word, which the first has written.
  const std::string body =
      ".reg .pred %p1;\nsetp.eq.u32 %p1, %r1, 0;\n@%p1 st.shared.u32 [%r3], %r1;\nbar.sync 0;\n"
      "ld.shared.u32 %r4, [%r3];";
  EXPECT_EQ(count(kernel(body)).passes, 2u);
}

TEST(Traffic, WideAccessesPassInParts) {
  // 16 bytes a lane: quarters of a warp, each with all banks once.
  const std::string store = "mov.u32 %r4, 0; st.shared.v4.u32 [%r2], {%r4, %r4, %r4, %r4};";
  const Traffic dense = count(kernel(store, 4));
  EXPECT_EQ(dense.passes, 4u);
  EXPECT_EQ(dense.least_passes, 4u);
  const Traffic apart = count(kernel(store, 8));
  EXPECT_EQ(apart.passes, 8u);
  EXPECT_EQ(apart.least_passes, 4u);
}

}  // namespace
}  // namespace strata::gpu_tests
