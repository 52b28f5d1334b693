// Loads, stores, spaces, atomics, cp.async.
#include <gtest/gtest.h>

#include <fmt/core.h>

#include <numeric>

#include "snippet.h"

namespace strata::gpu_tests {
namespace {

// %x0: this thread's word of the input; %x1: of the output.
const std::string kWords =
    "mov.u32 %r0, %tid.x;\nmul.wide.u32 %x0, %r0, 4;\nadd.s64 %x1, %out, %x0;\nadd.s64 %x0, %in, %x0;\n";

std::vector<uint32_t> count_up(size_t n, uint32_t first = 0) {
  std::vector<uint32_t> words(n);
  std::iota(words.begin(), words.end(), first);
  return words;
}

TEST(PtxMemory, Widths) {
  const std::vector<uint32_t> in = {0x8000'00ff, 0x1234'5678, 0x9abc'def0, 4, 5, 6, 7, 8};
  const auto first = [&](const std::string& body) { return run_words(body, 8, in, {1, 1, 1}); };
  EXPECT_EQ(first("ld.global.u8 %r1, [%in]; st.global.u32 [%out], %r1;")[0], 0xffu);
  EXPECT_EQ(first("ld.global.s8 %r1, [%in]; st.global.u32 [%out], %r1;")[0], 0xffff'ffffu);
  EXPECT_EQ(first("ld.global.s16 %r1, [%in+2]; st.global.u32 [%out], %r1;")[0], 0xffff'8000u);
  EXPECT_EQ(first("ld.global.u16 %h1, [%in]; cvt.u32.u16 %r1, %h1; st.global.u32 [%out], %r1;")[0], 0xffu);
  EXPECT_EQ(first("ld.global.b64 %x1, [%in]; st.global.b64 [%out+8], %x1;")[3], 0x1234'5678u);
  EXPECT_EQ(first("ld.global.s32 %x1, [%in]; st.global.b64 [%out], %x1;")[1], 0xffff'ffffu);
  EXPECT_EQ(first("mov.u32 %r1, 0x1234ab; st.global.u8 [%out+1], %r1; ld.global.u32 %r2, [%out];")[0],
            0xab00u);
  EXPECT_EQ(
      first("ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%in]; st.global.v4.u32 [%out], {%r4, %r3, %r2, %r1};"),
      (std::vector<uint32_t>{4, 0x9abc'def0, 0x1234'5678, 0x8000'00ff, 0, 0, 0, 0}));
  EXPECT_EQ(first("ld.global.v2.f32 {%f1, %f2}, [%in+8]; st.global.v2.f32 [%out], {%f2, %f1};")[1],
            0x9abc'def0u);
  EXPECT_EQ(first("ld.global.nc.L1::no_allocate.L2::128B.v4.f32 {%f1, %f2, %f3, %f4}, [%in]; "
                  "st.global.cs.f32 [%out], %f4;")[0],
            4u);
  if (make_device()->runs("sm_100")) {
    EXPECT_EQ(first("ld.global.v8.b32 {%r1, %r2, %r3, %r4, %r5, %r6, %r7, %r8}, [%in]; st.global.b32 [%out], "
                    "%r8;")[0],
              8u);
  }
  EXPECT_EQ(first("st.global.v2.b16 [%out], {7, 9};")[0], 0x9'0007u);
  EXPECT_EQ(first("ld.volatile.global.u32 %r1, [%in+12]; st.relaxed.gpu.global.u32 [%out], %r1;")[0], 4u);
  EXPECT_EQ(first("prefetch.global.L2 [%in]; membar.gl; fence.acq_rel.gpu; nanosleep.u32 20; st.global.u32 "
                  "[%out], 3;")[0],
            3u);
}

TEST(PtxMemory, Spaces) {
  const std::string shared = ".shared .align 16 .b8 tile[128];\n";
  const std::string body =
      kWords +
      "shl.b32 %r1, %r0, 2;\nmov.u32 %r2, tile;\nadd.s32 %r2, %r2, %r1;\nst.shared.u32 [%r2], %r0;\nbar.sync "
      "0;\n"
      // The adjacent lane's word, by its generic address.
      "xor.b32 %r3, %r1, 4;\nmov.u64 %x2, tile;\ncvta.shared.u64 %x3, %x2;\ncvt.u64.u32 %x4, %r3;\nadd.s64 "
      "%x3, %x3, %x4;\n"
      "ld.u32 %r4, [%x3];\nisspacep.shared %p1, %x3;\nisspacep.global %p2, %x3;\n@!%p1 trap;\n@%p2 trap;\n"
      "cvta.to.shared.u64 %x5, %x3;\nld.shared.u32 %r5, [%x5];\nadd.s32 %r4, %r4, %r5;\nst.global.u32 [%x1], "
      "%r4;\n";
  const std::vector<uint32_t> out = run_words(body, 32, {}, {32, 1, 1}, shared);
  for (uint32_t lane = 0; lane < 32; ++lane) EXPECT_EQ(out[lane], 2 * (lane ^ 1));
}

TEST(PtxMemory, LocalAndConstant) {
  const std::string outside =
      ".const .align 4 .u32 table[3] = {11, 22, 33};\n.global .align 4 .b8 values[8] = {1, 0, 0, 0, 77};\n"
      ".global .align 8 .u64 pointer = generic(values)+4;\n";
  const std::string body = kWords +
                           ".local .align 8 .b8 depot[16];\nmov.u64 %x2, depot;\ncvta.local.u64 %x3, "
                           "%x2;\nst.local.u32 [%x2+8], %r0;\n"
                           "ld.u32 %r1, [%x3+8];\nld.const.u32 %r2, [table+4];\nadd.s32 %r1, %r1, %r2;\n"
                           "mov.u64 %x4, pointer;\nld.global.u64 %x5, [%x4];\nld.u32 %r3, [%x5];\nadd.s32 "
                           "%r1, %r1, %r3;\nst.global.u32 [%x1], %r1;\n";
  const std::vector<uint32_t> out = run_words(body, 32, {}, {32, 1, 1}, outside);
  for (uint32_t lane = 0; lane < 32; ++lane) EXPECT_EQ(out[lane], lane + 22 + 77);
}

TEST(PtxMemory, DynamicSharedIsBounded) {
  Device device;
  const Module& module = device.load(
      kernel_text("mov.u32 %r0, %tid.x;\nshl.b32 %r1, %r0, 2;\nmov.u32 %r2, dyn;\nadd.s32 %r2, %r2, %r1;\n"
                  "st.shared.u32 [%r2], %r0;\nld.shared.u32 %r3, [%r2];\n@%p0 bra DONE;\nDONE:\n",
                  ".extern .shared .align 16 .b8 dyn[];\n"),
      "test.ptx");
  const uint64_t out_address = device.allocate(128);
  device.launch(module.kernel("test"), {.block = {32}, .shared_bytes = 128}, out_address, out_address);
  device.synchronize();
  device.launch(module.kernel("test"), {.block = {32}, .shared_bytes = 124}, out_address, out_address);
  try {
    device.synchronize();
    FAIL();
  } catch (const Violation& violation) {
    EXPECT_EQ(violation.fault(), Fault::kOutOfBounds);
    EXPECT_EQ(violation.details().thread[0], 31u);
    EXPECT_EQ(violation.details().allocation, "dyn");
  }
}

TEST(PtxMemory, Params) {
  const std::string text =
      ".version 9.0\n.target sm_80\n.address_size 64\n"
      ".visible .entry test(.param .u64 .ptr .align 1 out, .param .align 8 .b8 s[24], .param .u8 small, "
      ".param .f32 scale)\n{\n"
      ".reg .b64 %x<4>; .reg .b32 %r<4>; .reg .b16 %h<2>; .reg .f32 %f<3>;\n"
      "ld.param.u64 %x0, [out]; ld.param.u64 %x1, [s+8]; ld.param.v2.u32 {%r0, %r1}, [s+16]; ld.param.u8 "
      "%h0, [small];\n"
      "ld.param.f32 %f0, [scale]; mov.b64 %x3, s; ld.param.u32 %r3, [%x3+4]; cvt.u32.u16 %r2, %h0;\n"
      "st.global.u64 [%x0], %x1; st.global.v2.u32 [%x0+8], {%r0, %r1}; st.global.u32 [%x0+16], %r2; "
      "st.global.f32 [%x0+20], %f0;\n"
      "st.global.u32 [%x0+24], %r3; ret;\n}\n";
  struct {
    uint32_t words[6] = {1, 2, 3, 4, 5, 6};
  } s;
  const std::unique_ptr<GpuDevice> device = make_device();
  const uint64_t out = device->allocate(28, "out");
  device->launch(device->load(text, "test.ptx", "test"), {}, out, s, uint8_t{200}, 2.5f);
  uint32_t words[7];
  device->read(out, words, sizeof words);
  EXPECT_EQ(std::vector<uint32_t>(words, words + 7),
            (std::vector<uint32_t>{3, 4, 5, 6, 200, static_cast<uint32_t>(bits(2.5f)), 2}));
  Device executor;
  const Kernel& kernel = executor.load(text, "test.ptx").kernel("test");
  EXPECT_EQ(kernel.param_bytes, 40u);
  EXPECT_THROW(executor.launch(kernel, {}, out, s, 200, 2.5f), Violation);
  EXPECT_THROW(executor.launch(kernel, {}, out, s), Violation);
}

TEST(PtxMemory, Atomics) {
  const auto total = [&](const std::string& instruction, uint32_t start) {
    return run_words(
        "mov.u32 %r0, %tid.x;\nst.relaxed.gpu.global.u32 [%in], " + std::to_string(start) +
            ";\nbar.sync 0;\n" + instruction +
            "\nbar.sync 0;\nld.relaxed.gpu.global.u32 %r1, [%in];\nst.relaxed.gpu.global.u32 [%out], %r1;\n",
        1, {0}, {64, 1, 1})[0];
  };
  EXPECT_EQ(total("atom.global.add.u32 %r5, [%in], %r0;", 5), 5u + 63 * 64 / 2);
  EXPECT_EQ(total("red.global.add.u32 [%in], 1;", 5), 69u);
  EXPECT_EQ(total("atom.global.max.s32 %r5, [%in], %r0;", 0xffff'ffff), 63u);
  EXPECT_EQ(total("atom.global.min.u32 %r5, [%in], %r0;", 7), 0u);
  EXPECT_EQ(total("red.global.or.b32 [%in], %r0;", 0), 63u);
  EXPECT_EQ(total("red.global.xor.b32 [%in], 3;", 9), 9u);
  EXPECT_EQ(total("red.global.and.b32 [%in], 6;", 15), 6u);
  EXPECT_EQ(total("atom.global.inc.u32 %r5, [%in], 9;", 0), 4u);  // 64 steps of 0 … 9
  EXPECT_EQ(total("atom.global.dec.u32 %r5, [%in], 9;", 0), 6u);
  EXPECT_EQ(total("cvt.rn.f32.u32 %f1, %r0;\nred.global.add.f32 [%in], %f1;", 0), bits(2016.0f));
  EXPECT_EQ(total("atom.relaxed.gpu.global.cas.b32 %r5, [%in], %r0, 1000;", 13), 1000u);
  EXPECT_EQ(run_words("atom.add.u32 %r1, [%in], 3;\natom.global.exch.b32 %r2, [%in], "
                      "50;\natom.acq_rel.gpu.global.add.u64 %x1, [%in], 1;\n"
                      "st.global.v4.u32 [%out], {%r1, %r2, 0, 0};\nst.global.u64 [%out+8], %x1;",
                      4, {10, 0}, {1, 1, 1}),
            (std::vector<uint32_t>{10, 13, 50, 0}));
  const std::vector<uint32_t> shared = run_words(
      "mov.u32 %r0, %tid.x;\nsetp.eq.u32 %p1, %r0, 0;\n@%p1 st.shared.u32 [n], 0;\nbar.sync 0;\n"
      "mov.u32 %r2, n;\natom.shared.add.u32 %r1, [%r2], 2;\nbar.sync 0;\nld.shared.u32 %r3, [n];\n@%p1 "
      "st.global.u32 [%out], %r3;\n",
      1, {}, {96, 1, 1}, ".shared .align 4 .u32 n;\n");
  EXPECT_EQ(shared[0], 192u);
}

TEST(PtxMemory, SmallAtomics) {
  EXPECT_EQ(run_words("mov.u32 %r1, 0x40003f80;\natom.global.add.noftz.bf16x2 %r2, [%in], "
                      "%r1;\nld.global.u32 %r3, [%in];\nst.global.v2.u32 [%out], {%r2, %r3};",
                      2, {0x3f80'3f80}, {1, 1, 1}),
            (std::vector<uint32_t>{0x3f80'3f80, 0x4040'4000}));
  EXPECT_EQ(run_words("mov.u32 %r1, 0x40003c00;\nred.global.add.noftz.f16x2 [%in], %r1;\nld.global.u32 %r3, "
                      "[%in];\nst.global.u32 [%out], %r3;",
                      1, {0x3c00'3c00}, {1, 1, 1})[0],
            0x4200'4000u);
}

// 16-byte copies by each lane, a wait, and a read by the neighboring lane.
std::string copy_body(const std::string& copy, const std::string& wait) {
  return "mov.u32 %r0, %tid.x;\nmul.wide.u32 %x0, %r0, 16;\nadd.s64 %x1, %out, %x0;\nadd.s64 %x0, %in, "
         "%x0;\nshl.b32 %r1, %r0, 4;\n"
         "mov.u32 %r2, tile;\nadd.s32 %r3, %r2, %r1;\n" +
         copy + wait +
         "xor.b32 %r4, %r1, 16;\nadd.s32 %r4, %r4, %r2;\nld.shared.v4.u32 {%r5, %r6, %r7, %r8}, "
         "[%r4];\nst.global.v4.u32 [%x1], {%r5, %r6, %r7, %r8};\n";
}
const std::string kTile = ".shared .align 16 .b8 tile[1024];\n";
const std::string kCommit = "cp.async.commit_group;\ncp.async.wait_group 0;\nbar.sync 0;\n";

TEST(PtxMemory, AsyncCopies) {
  const std::vector<uint32_t> in = count_up(256, 100);
  const auto run = [&](const std::string& copy, const std::string& wait) {
    return run_words(copy_body(copy, wait), 256, in, {64, 1, 1}, kTile);
  };
  const auto neighbour = [&](size_t word) { return in[(word / 4 ^ 1) * 4 + word % 4]; };
  for (const std::string& wait : {kCommit, std::string("cp.async.wait_all;\nbar.sync 0;\n")}) {
    const std::vector<uint32_t> out = run("cp.async.cg.shared.global [%r3], [%x0], 16;\n", wait);
    for (size_t word = 0; word < 256; ++word) EXPECT_EQ(out[word], neighbour(word));
  }
  // Fewer source bytes: the rest is zero. With 0 bytes the source is not read.
  std::vector<uint32_t> out = run("cp.async.cg.shared.global.L2::128B [%r3], [%x0], 16, 8;\n", kCommit);
  for (size_t word = 0; word < 256; ++word) EXPECT_EQ(out[word], word % 4 < 2 ? neighbour(word) : 0);
  out = run("add.s64 %x0, %x0, 1048576;\nmov.u32 %r9, 0;\ncp.async.ca.shared.global [%r3], [%x0], 16, %r9;\n",
            kCommit);
  EXPECT_EQ(out, std::vector<uint32_t>(256, 0));
  out =
      run("cp.async.ca.shared.global [%r3], [%x0], 8;\ncp.async.ca.shared.global [%r3+8], [%x0+8], "
          "4;\ncp.async.ca.shared.global [%r3+12], [%x0], 4;\n",
          kCommit);
  for (size_t word = 0; word < 256; ++word)
    EXPECT_EQ(out[word], word % 4 == 3 ? neighbour(word - 3) : neighbour(word));
  // The first of two groups has arrived; the second need not have.
  out = run("cp.async.cg.shared.global [%r3], [%x0], 16;\ncp.async.commit_group;\nadd.s32 %r3, %r3, 0;\n",
            "cp.async.commit_group;\ncp.async.wait_group 1;\nbar.sync 0;\n");
  EXPECT_EQ(out[0], neighbour(0));
}

TEST(PtxMemory, AsyncCopiesLandLate) {
  const std::string copy = "cp.async.cg.shared.global [%r3], [%x0], 16;\ncp.async.commit_group;\n";
  const auto fault = [&](const std::string& wait) {
    return violation_of(copy_body(copy, wait), {64, 1, 1}, kTile);
  };
  EXPECT_EQ(fault("bar.sync 0;\n").fault, Fault::kPendingCopy);  // no wait
  EXPECT_EQ(fault("cp.async.wait_group 1;\nbar.sync 0;\n").fault,
            Fault::kPendingCopy);  // waits for one group too few
  const Fault early = fault("cp.async.wait_group 0;\n").fault;
  EXPECT_TRUE(early == Fault::kRace || early == Fault::kPendingCopy);  // no barrier
  // The buffer is overwritten while other lanes still read it.
  EXPECT_EQ(violation_of(
                copy_body(copy, "cp.async.wait_group 0;\nbar.sync 0;\n") + copy + "cp.async.wait_group 0;\n",
                {64, 1, 1}, kTile)
                .fault,
            Fault::kRace);
  EXPECT_EQ(violation_of(copy_body("add.s64 %x0, %x0, 4;\n" + copy, kCommit), {64, 1, 1}, kTile).fault,
            Fault::kMisaligned);
  EXPECT_EQ(violation_of(copy_body("add.s32 %r3, %r3, 64;\n" + copy, kCommit), {64, 1, 1}, kTile).fault,
            Fault::kOutOfBounds);
}

}  // namespace
}  // namespace strata::gpu_tests
