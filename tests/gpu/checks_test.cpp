// Plants a fault for each check: the check must find it and name line, thread, allocation and the other
// access.
#include <gtest/gtest.h>

#include "snippet.h"

namespace strata::gpu_tests {
namespace {

const std::string kThread =
    "mov.u32 %r0, %tid.x;\nmul.wide.u32 %x0, %r0, 4;\nadd.s64 %x1, %out, %x0;\nadd.s64 %x0, %in, "
    "%x0;\nmov.u32 %r9, 1;\n";
const std::string kTile = ".shared .align 16 .b8 tile[256];\n.shared .align 16 .b8 second[64];\n";
const std::string kSlot = "shl.b32 %r1, %r0, 2;\nmov.u32 %r2, tile;\nadd.s32 %r2, %r2, %r1;\n";
constexpr Extent kWarp = {32, 1, 1};
constexpr Extent kTwoWarps = {64, 1, 1};

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(PtxChecks, BoundsOfGlobalMemory) {
  const ViolationDetails found = violation_of(
      kThread + "setp.eq.u32 %p1, %r0, 31;\n@%p1 add.s64 %x1, %out, 4096;\nst.global.u32 [%x1], %r9;\n",
      kWarp);
  EXPECT_EQ(found.fault, Fault::kOutOfBounds);
  EXPECT_EQ(found.allocation, "out");
  EXPECT_EQ(found.thread[0], 31u);
  EXPECT_EQ(found.line, 24);
  EXPECT_EQ(found.kernel, "test");
  EXPECT_EQ(violation_of("ld.global.u32 %r1, [16];", kWarp).fault, Fault::kOutOfBounds);  // no allocation
  EXPECT_EQ(violation_of("ld.global.u32 %r1, [%in+-4];", kWarp).fault,
            Fault::kOutOfBounds);  // before the first byte
  EXPECT_EQ(violation_of("ld.global.v4.u32 {%r1,%r2,%r3,%r4}, [%in+4096];", kWarp).fault,
            Fault::kOutOfBounds);
  EXPECT_EQ(violation_of("ld.const.u32 %r1, [%in];", kWarp).fault,
            Fault::kOutOfBounds);  // not a constant address
}

TEST(PtxChecks, BoundsOfOtherSpaces) {
  const ViolationDetails found =
      violation_of(kThread + kSlot + "st.shared.u32 [%r2], %r0;\n", {128, 1, 1}, kTile);
  EXPECT_EQ(
      found.fault,
      Fault::kOutOfBounds);  // tile holds 64 threads' words; an overrun does not reach the next variable
  EXPECT_EQ(found.allocation, "tile");
  EXPECT_GE(found.thread[0], 64u);
  EXPECT_EQ(violation_of("ld.shared.u32 %r1, [4];", kWarp, kTile).fault, Fault::kOutOfBounds);
  EXPECT_EQ(
      violation_of(".local .align 4 .b8 depot[16];\nmov.u64 %x2, depot;\nst.local.u32 [%x2+16], 1;", kWarp)
          .fault,
      Fault::kOutOfBounds);
  EXPECT_EQ(violation_of("ld.param.u32 %r1, [out+16];", kWarp).fault, Fault::kOutOfBounds);
  EXPECT_EQ(violation_of("st.global.u32 [%x1], %r9;", kWarp).fault,
            Fault::kMisaligned);  // a register that was never set: poison
}

TEST(PtxChecks, Alignment) {
  const ViolationDetails found =
      violation_of(kThread + "st.global.v4.u32 [%x1], {%r9, %r9, %r9, %r9};\n", kWarp);
  EXPECT_EQ(found.fault, Fault::kMisaligned);
  EXPECT_EQ(found.thread[0], 1u);
  EXPECT_EQ(violation_of("ld.global.u64 %x1, [%in+4];", kWarp).fault, Fault::kMisaligned);
  EXPECT_EQ(violation_of("ld.shared.u16 %h1, [tile+1];", kWarp, kTile).fault, Fault::kMisaligned);
  EXPECT_EQ(violation_of("atom.global.add.u32 %r1, [%in+2], 1;", kWarp).fault, Fault::kMisaligned);
}

TEST(PtxChecks, NeverWritten) {
  EXPECT_EQ(violation_of("ld.global.u32 %r1, [%out];", kWarp).fault, Fault::kUnwritten);
  EXPECT_EQ(violation_of("ld.shared.u32 %r1, [second];", kWarp, kTile).allocation, "second");
  EXPECT_EQ(violation_of(".local .align 4 .b8 depot[16];\nmov.u64 %x2, depot;\nst.local.u16 [%x2], "
                         "1;\nld.local.u32 %r1, [%x2];",
                         kWarp)
                .fault,
            Fault::kUnwritten);
  EXPECT_EQ(violation_of("red.global.add.u32 [%out], 1;", kWarp).fault, Fault::kUnwritten);
  // Shared memory is separate for each block.
  EXPECT_EQ(violation_of("mov.u32 %r0, %ctaid.x;\nsetp.eq.u32 %p1, %r0, 0;\n@%p1 st.shared.u32 [tile], "
                         "1;\nld.shared.u32 %r1, [tile];",
                         {1, 1, 1}, kTile, 8)
                .fault,
            Fault::kUnwritten);
}

TEST(PtxChecks, ConstantsAndFreedMemory) {
  EXPECT_EQ(violation_of("mov.u64 %x2, table;\nst.u32 [%x2], 1;", kWarp,
                         ".const .align 4 .u32 table[2] = {1, 2};\n")
                .fault,
            Fault::kReadOnly);
  Device device;
  const Module& module = device.load(kernel_text("ld.global.u32 %r1, [%in];"), "test.ptx");
  const uint64_t gone = device.allocate(64, "gone");
  device.free(gone);
  device.launch(module.kernel("test"), {}, gone, gone);
  try {
    device.synchronize();
    FAIL();
  } catch (const Violation& violation) {
    EXPECT_EQ(violation.fault(), Fault::kFreed);
    EXPECT_EQ(violation.details().allocation, "gone");
  }
}

// Each thread writes its word of the tile and reads another's.
std::string exchange(const std::string& between, const std::string& other) {
  return kThread + kSlot + "st.shared.u32 [%r2], %r0;\n" + between + "xor.b32 %r3, %r1, " + other +
         ";\nmov.u32 %r4, tile;\nadd.s32 %r4, %r4, %r3;\nld.shared.u32 %r5, [%r4];\n";
}

TEST(PtxChecks, RacesInABlock) {
  for (uint64_t seed = 1; seed < 9; ++seed) {
    // Without a barrier: found whether the schedule runs the read or the write first.
    const ViolationDetails found =
        violation_of(exchange("", "128") + "bar.sync 0;\n", kTwoWarps, kTile, 1, seed);
    EXPECT_TRUE(found.fault == Fault::kRace || found.fault == Fault::kUnwritten);
    if (found.fault == Fault::kRace) {
      EXPECT_EQ(found.allocation, "tile");
      EXPECT_TRUE(has(found.other, "st.shared.u32 [%r2], %r0") || has(found.other, "ld.shared.u32 %r5"))
          << found.other;
      EXPECT_TRUE(has(found.other, "thread (")) << found.other;
    }
    // A read and a write of the same word without a barrier in between.
    EXPECT_EQ(violation_of(exchange("bar.sync 0;\n", "128") + "st.shared.u32 [%r2], %r5;\n", kTwoWarps, kTile,
                           1, seed)
                  .fault,
              Fault::kRace);
  }
  EXPECT_EQ(violation_of(exchange("", "4"), kWarp, kTile).fault, Fault::kRace);  // lanes of one warp
  EXPECT_EQ(violation_of(kThread + "st.shared.u32 [tile], %r0;\n", kTwoWarps, kTile).fault,
            Fault::kRace);  // two writes
  EXPECT_EQ(violation_of(kThread + "st.shared.u32 [tile], %r0;\nbar.sync 0;\nst.shared.u8 [tile+1], %r0;\n",
                         kTwoWarps, kTile)
                .fault,
            Fault::kRace);
  // An atomic access does not excuse a plain one.
  EXPECT_EQ(violation_of("mov.u32 %r0, %tid.x;\nsetp.eq.u32 %p1, %r0, 0;\n@%p1 st.shared.u32 [tile], "
                         "0;\nbar.sync 0;\n@%p1 ld.shared.u32 %r1, [tile];\n"
                         "@!%p1 red.shared.add.u32 [tile], 1;\n",
                         kTwoWarps, kTile)
                .fault,
            Fault::kRace);
}

TEST(PtxChecks, OrderedAccessesAreNoRaces) {
  for (uint64_t seed = 1; seed < 9; ++seed) {
    run_words(exchange("bar.sync 0;\n", "128") + "bar.sync 0;\nst.shared.u32 [%r2], %r5;\n", 1, {}, kTwoWarps,
              kTile, 1, seed);
    run_words(exchange("bar.warp.sync -1;\n", "4") + "bar.warp.sync -1;\nst.shared.u32 [%r2], %r5;\n", 1, {},
              kTwoWarps, kTile, 1, seed);
    // All lanes read one word, then one writes it.
    run_words(
        "mov.u32 %r0, %tid.x;\nsetp.eq.u32 %p1, %r0, 0;\n@%p1 st.shared.u32 [tile], 5;\nbar.sync "
        "0;\nld.shared.u32 %r1, [tile];\nbar.sync 0;\n@%p1 st.shared.u32 [tile], 6;\n",
        1, {}, kTwoWarps, kTile, 1, seed);
    // Two threads access adjacent bytes.
    run_words(
        "mov.u32 %r0, %tid.x;\nmov.u32 %r2, tile;\nadd.s32 %r2, %r2, %r0;\nst.shared.u8 [%r2], "
        "%r0;\nld.shared.u8 %r3, [%r2];\n",
        1, {}, kTwoWarps, kTile, 1, seed);
  }
}

TEST(PtxChecks, RacesBetweenBlocks) {
  const std::string block = "mov.u32 %r0, %ctaid.x;\nmul.wide.u32 %x0, %r0, 4;\nadd.s64 %x1, %out, %x0;\n";
  for (uint64_t seed = 1; seed < 5; ++seed) {
    EXPECT_EQ(violation_of(block + "st.global.u32 [%out], %r0;\n", {1, 1, 1}, "", 4, seed).fault,
              Fault::kRace);
    EXPECT_EQ(
        violation_of(
            block + "setp.eq.u32 %p1, %r0, 2;\nld.global.u32 %r1, [%in];\n@%p1 st.global.u32 [%in], %r0;\n",
            {1, 1, 1}, "", 4, seed)
            .fault,
        Fault::kRace);
    const ViolationDetails found = violation_of(block +
                                                    "setp.eq.u32 %p1, %r0, 2;\n@!%p1 ld.global.u32 %r1, "
                                                    "[%in+64];\n@%p1 st.global.u32 [%in+64], %r0;\n",
                                                {1, 1, 1}, "", 4, seed);
    EXPECT_TRUE(has(found.other, "block")) << found.other;
  }
  run_words(block + "st.global.u32 [%x1], %r0;\nred.global.add.u32 [%in], 1;\n", 8, {0}, {1, 1, 1}, "",
            8);  // no race
}

TEST(PtxChecks, Barriers) {
  const ViolationDetails found =
      violation_of(kThread +
                       "setp.lt.u32 %p1, %r0, 16;\n@!%p1 bra SKIP;\nbar.sync 0;\nSKIP:\nst.global.u32 [%x1], "
                       "%r0;\nvote.sync.any.pred %p2, %p1, -1;\n",
                   kWarp);
  EXPECT_EQ(found.fault, Fault::kBarrier);
  EXPECT_EQ(found.line, 24);
  EXPECT_EQ(
      violation_of(kThread + "setp.lt.u32 %p1, %r0, 32;\n@%p1 bra SKIP;\nbar.sync 0, 64;\nSKIP:\n", kTwoWarps)
          .fault,
      Fault::kDeadlock);
  EXPECT_EQ(violation_of("bar.sync 0, 48;", kTwoWarps).fault, Fault::kBarrier);
  EXPECT_EQ(violation_of("bar.sync 16;", kTwoWarps).fault, Fault::kBarrier);
  EXPECT_EQ(
      violation_of(
          kThread +
              "setp.lt.u32 %p1, %r0, 32;\n@%p1 bra A;\nbar.sync 1, 64;\nbra B;\nA:\nbar.sync 1, 96;\nB:\n",
          {96, 1, 1})
          .fault,
      Fault::kBarrier);
}

TEST(PtxChecks, Masks) {
  EXPECT_EQ(violation_of(kThread + "shfl.sync.bfly.b32 %r1, %r0, 1, 31, 0xffff;\n", kWarp).fault,
            Fault::kMask);
  EXPECT_EQ(
      violation_of(kThread + "setp.lt.u32 %p1, %r0, 16;\n@%p1 shfl.sync.bfly.b32 %r1, %r0, 16, 31, 0xffff;\n",
                   kWarp)
          .fault,
      Fault::kMask);
  EXPECT_EQ(violation_of(kThread + "setp.lt.u32 %p1, %r0, 16;\n@!%p1 bra SKIP;\nshfl.sync.bfly.b32 %r1, %r0, "
                                   "1, 31, -1;\nSKIP:\n bar.warp.sync -1;\n",
                         kWarp)
                .fault,
            Fault::kMask);
  EXPECT_EQ(violation_of("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%f1,%f2,%f3,%f4}, {%r1,%r2}, "
                         "{%r3}, {%f1,%f2,%f3,%f4};",
                         {31, 1, 1})
                .fault,
            Fault::kMask);
  // Lane 0 waits for lane 1, whose mask contains only itself.
  EXPECT_EQ(violation_of(kThread + "shl.b32 %r1, 1, %r0;\nsetp.eq.u32 %p1, %r0, 0;\nselp.b32 %r1, 3, %r1, "
                                   "%p1;\nbar.warp.sync %r1;\n",
                         kWarp)
                .fault,
            Fault::kMask);
}

TEST(PtxChecks, TrapsAndLimits) {
  EXPECT_EQ(violation_of("mov.u32 %r0, %tid.x;\nsetp.eq.u32 %p1, %r0, 9;\n@%p1 trap;", kWarp).thread[0], 9u);
  EXPECT_EQ(violation_of("LOOP:\nbra LOOP;", kWarp).fault, Fault::kLimit);
  EXPECT_EQ(violation_of("LOOP:\nbar.warp.sync -1;\nbra LOOP;", kWarp).fault, Fault::kLimit);
}

TEST(PtxChecks, SourceLines) {
  const std::string outside = ".file 1 \"/some/where/kernel.cu\"\n";
  const ViolationDetails found = violation_of(".loc 1 77 3\nld.global.u32 %r1, [%out];", kWarp, outside);
  EXPECT_EQ(found.source_file, "kernel.cu");
  EXPECT_EQ(found.source_line, 77);
}

TEST(PtxChecks, Launches) {
  Device device;
  const Module& module =
      device.load(kernel_text("mov.u32 %r0, 0;", ".extern .shared .align 16 .b8 dyn[];\n"), "test.ptx");
  const Kernel& kernel = module.kernel("test");
  const uint64_t nothing = 0;
  const auto refused = [&](const LaunchShape& shape) {
    try {
      device.launch(kernel, shape, nothing, nothing);
    } catch (const Violation& violation) {
      return violation.fault() == Fault::kLaunch;
    }
    return false;
  };
  EXPECT_TRUE(refused({.block = {1025}}));
  EXPECT_TRUE(refused({.block = {0}}));
  EXPECT_TRUE(refused({.grid = {1, 70000, 1}}));
  EXPECT_TRUE(refused({.grid = {0}}));
  EXPECT_TRUE(refused({.shared_bytes = 228 * 1024}));
  EXPECT_FALSE(refused({.grid = {2, 2, 2}, .block = {8, 4, 2}, .shared_bytes = 1024}));
  device.synchronize();
  EXPECT_EQ(device.counters().blocks, 8u);
}

}  // namespace
}  // namespace strata::gpu_tests
