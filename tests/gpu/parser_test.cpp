// Accepted texts, and errors with line numbers; damaged texts cause an error, never a crash.
#include <gtest/gtest.h>

#include <fmt/core.h>

#include <random>

#include "snippet.h"

namespace strata::gpu_tests {
namespace {

struct Bad {
  std::string body;
  std::string part;  // part of the message
};

std::string message_of(const std::string& text, int* line = nullptr) {
  Device device;
  try {
    device.load(text, "bad.ptx");
  } catch (const LoadError& error) {
    if (line != nullptr) *line = error.line();
    return error.what();
  }
  return "";
}

TEST(PtxParser, ErrorsNameLineAndText) {
  const std::vector<Bad> bad = {
      {"frobnicate.f32 %f1, %f2;", "unknown instruction frobnicate.f32"},
      {"add.f32.fancy %f1, %f2, %f3;", ".fancy"},
      {"add.rx.f32 %f1, %f2, %f3;", ".rx"},
      {"add.f32 %f1, %f2;", "2 operands"},
      {"add.f32 %f1, %f2, %r100;", "%r100"},
      {"add.f32 %f1, %f2, %x3;", "64 bits"},
      {"add.f32 %f1, %f2, 7;", "is an integer: expected a float"},
      {"add.u16 %h1, %h1, 70000;", "does not fit"},
      {"fma.f32 %f1, %f2, %f3, %f4;", "needs a rounding"},
      {"cvt.s32.f32 %r1, %f1;", "needs a rounding to an integer"},
      {"cvt.f16.f32 %h1, %f1;", "needs a rounding"},
      {"cvt.rn.s32.f32 %r1, %f1;", "rounding"},
      {"setp.ltu.s32 %p1, %r1, %r2;", "does not exist for .s32"},
      {"setp.lo.s32 %p1, %r1, %r2;", "does not exist"},
      {"mov.u32 %tid.x, %r1;", "cannot be written"},
      {"bra NOWHERE;", "label NOWHERE does not exist"},
      {"L:\nL:", "is duplicated"},
      {"@%r1 bra L;\nL:", "is not a predicate"},
      {"ld.global.v4.f32 {%f1, %f2}, [%in];", "a vector of 4"},
      {"ld.global.f32 %f1, %in;", "an address in brackets"},
      {"ld.shared.f32 %f1, [missing];", "missing is not a register or variable"},
      {"st.const.f32 [%in], %f1;", "constants cannot be stored"},
      {"ld.global.b128 %x1, [%in];", ".b128"},
      {"wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f1}, %x1, %x2, 1, 1, 1;", "wgmma"},
      {"mbarrier.init.shared.b64 [%x1], 1;", "mbarrier"},
      {"cp.async.bulk.commit_group;", "TMA"},
      {"tcgen05.wait;", "tensor memory"},
      {"barrier.cluster.arrive;", "clusters"},
      {"fence.proxy.async;", "TMA"},
      {"mapa.u64 %x1, %x2, 0;", "clusters"},
      {"mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%r1,%r2}, {%r1,%r2,%r3,%r4}, {%r5,%r6}, "
       "{%r1,%r2};",
       ".f16"},
      {"mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32 {%r1}, {%r1}, {%r1}, {%r1};", "shape"},
      {"ldmatrix.sync.aligned.m8n8.x4.b16 {%r1,%r2,%r3,%r4}, [%r5];", ".shared"},
      {"call.uni missing, ();", "missing is not a function"},
      {"atom.global.add.b32 %r1, [%in], 1;", "does not exist for .b32"},
      {"red.global.cas.b32 [%in], 1, 2;", "red"},
      {"shfl.bfly.b32 %r1, %r2, 1, 31;", ".sync"},
      {"prmt.b32.zz %r1, %r2, %r3, %r4;", ".zz"},
      {".reg .b32 %r1;\n.reg .b32 %r1;", "is duplicated"},
      {"add.s32 %r1, %r2, 12x;", "is not a number"},
      {"add.s32 %r1, %r2, 0f3F8;", "is not a number"},
      {"add.s32 %r1 %r2, 1;", "expected"},
      {"lop3.b32 %r1, %r2, %r3, %r4, 256;", "a number from 0 to 255"},
  };
  for (const Bad& one : bad) {
    int line = 0;
    const std::string message = message_of(kernel_text("mov.u32 %r1, 0;\n" + one.body), &line);
    EXPECT_NE(message.find(one.part), std::string::npos) << one.body << " reports: " << message;
    EXPECT_GE(line, 18) << message;
    EXPECT_LE(line, 21) << message;
    EXPECT_EQ(message.rfind("bad.ptx:", 0), 0u) << message;
  }
}

TEST(PtxParser, ErrorsOfModules) {
  EXPECT_NE(message_of("").find("expected .version, found the end"), std::string::npos);
  EXPECT_NE(message_of(".version 5.0\n").find("too old"), std::string::npos);
  EXPECT_NE(message_of(".version 9.0\n.target sm_80\n.address_size 32\n").find("64"), std::string::npos);
  const std::string head = ".version 9.0\n.target sm_80\n.address_size 64\n";
  EXPECT_NE(message_of(head + ".visible .entry k() { ret;").find("no end"), std::string::npos);
  EXPECT_NE(message_of(head + ".global .u32 a[2] = {1, 2, 3};").find("more initial values"),
            std::string::npos);
  EXPECT_NE(message_of(head + ".global .align 3 .u32 a;").find("not an alignment"), std::string::npos);
  EXPECT_NE(message_of(head + ".global .u32 a[99999999999];").find("not a usable size"), std::string::npos);
  EXPECT_NE(message_of(head + ".extern .global .u32 a;").find("not defined"), std::string::npos);
  EXPECT_NE(message_of(head + "/* no end").find("comment"), std::string::npos);
  EXPECT_NE(
      message_of(
          head +
          ".func f() { call g, (); ret; }\n.func g() { call f, (); ret; }\n.entry k() { call f, (); ret; }")
          .find("recursive"),
      std::string::npos);
  EXPECT_NE(
      message_of(head + ".extern .func vprintf ();\n.entry k() { call vprintf, (); ret; }").find("no body"),
      std::string::npos);
  EXPECT_EQ(message_of(head), "");
}

TEST(PtxParser, WhatCompilersWrite) {
  Device device;
  const Module& module = device.load(
      "// a comment\n.version 9.0\n.target sm_90a, debug\n.address_size 64\n\t.file\t1 \"/a/b/kernel.cu\", "
      "1, 2\n.weak .global .align 4 .f32 one = 0f3F800000;\n"
      ".visible .entry first(\n\t.param .u64 .ptr .global .align 16 p,\n\t.param .align 8 .b8 "
      "q[16]\n)\n.maxntid 128, 1, 1\n.minnctapersm 2\n{\n\t.reg .pred \t%p<2>;\n"
      "\t.reg .b32 \t%r<3>, %q<2>;\n\t.loc\t1 7 3\n\t.loc 1 8 1, function_name $L__info_string0, inlined_at "
      "1 9 2\n\tmov.u32 \t%r1, %tid.x;\n"
      "\t.pragma \"nounroll\";\n$L__BB0_1:\n\t// begin inline asm\n\t{ .reg .pred p; setp.lt.u32 p, %r1, 3; "
      "@p add.s32 %r1, %r1, 1; }\n"
      "\t{ .reg .pred p; setp.lt.u32 p, %r1, 3; @p bra L; L: }\n\tret;\n\n}\n.entry second() .reqntid 32 { "
      "ret; }\n"
      "\t.section\t.debug_str\n\t{\n$L__info_string0:\n.b8 95, 90\n\n\t}\n",
      "test.ptx");
  EXPECT_EQ(module.kernels().size(), 2u);
  EXPECT_EQ(module.target(), "sm_90a");
  EXPECT_EQ(module.kernel("first").params[1].offset, 8u);
  EXPECT_EQ(module.kernel("first").max_threads[0], 128u);
  EXPECT_EQ(module.kernel("seco").required_threads[0], 32u);
  EXPECT_THROW(module.kernel("third"), std::invalid_argument);
  float one = 0;
  device.read(module.address("one"), &one, 4);
  EXPECT_EQ(one, 1.0f);
}

// All kinds of instructions; mutations of this text are loaded and, if they load, run.
const std::string& sample() {
  static const std::string kText = kernel_text(
      ".shared .align 16 .b8 tile[512];\n.loc 1 5 3\nmov.u32 %r0, %tid.x;\nshl.b32 %r1, %r0, 2;\nmov.u32 "
      "%r2, tile;\nadd.s32 %r2, %r2, %r1;\nst.shared.u32 [%r2], %r0;\n"
      "bar.sync 0;\nsetp.lt.u32 %p1, %r0, 16;\n@%p1 bra A;\nmad.lo.s32 %r3, %r0, 3, %r1;\nbra.uni "
      "B;\nA:\nmov.b32 %r3, -7;\nB:\nshfl.sync.bfly.b32 %r4|%p2, %r3, 1, 31, -1;\n"
      "fma.rn.f32 %f1, 0f3F800000, %f2, %f3;\ncvt.rzi.s32.f32 %r5, 0f40490FDB;\nmov.b64 %x2, {%r3, "
      "%r4};\nmov.b64 {%r6, %r7}, %x2;\n"
      "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r8}, "
      "[tile];\nmma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%f1, %f2, %f3, %f4}, {%r5, %r6}, {%r7}, "
      "{%f5, %f6, %f7, %f8};\n"
      "cp.async.ca.shared.global [%r2], [%in], 4;\ncp.async.wait_all;\natom.global.add.u32 %r9, [%in], "
      "1;\nselp.b32 %r10, 1, 2, %p1;\nvote.sync.ballot.b32 %r11, %p1, -1;\n"
      "{\n.param .b32 p0;\nst.param.b32 [p0], %r3;\n.param .b32 r0;\ncall.uni (r0), f, (p0);\nld.param.b32 "
      "%r12, [r0];\n}\nmul.wide.u32 %x3, %r0, 4;\nadd.s64 %x3, %x3, %out;\n"
      "st.global.u32 [%x3], %r12;\n",
      ".file 1 \"a.cu\"\n.global .align 4 .u32 g[2] = {1, 2};\n.func (.param .b32 r) f(.param .b32 a) { .reg "
      ".b32 %r<2>; ld.param.b32 %r1, [a]; st.param.b32 [r], %r1; ret; }\n");
  return kText;
}

TEST(PtxParser, DamagedTextsEndInErrors) {
  EXPECT_EQ(message_of(sample()), "");
  std::mt19937 random(7);
  const auto below = [&](size_t count) {
    return std::uniform_int_distribution<size_t>(0, count - 1)(random);
  };
  size_t loaded = 0, refused = 0, violated = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string text = sample();
    for (size_t changes = 1 + below(3); changes > 0; --changes) {
      const size_t at = below(text.size());
      switch (below(9)) {
        case 0:
          text[at] = static_cast<char>(below(256));
          break;
        case 1:
          text.erase(at, 1 + below(12));
          break;
        case 2:
          text.insert(at, text.substr(below(text.size()), below(40)));
          break;
        case 3:
          text[at] = ";,{}[]().%0123456789-"[below(21)];
          break;
        case 4:
          text = text.substr(0, at);
          break;
        case 5:
        case 6:
        case 7: {  // another number: mostly still valid
          const size_t digit = text.find_first_of("0123456789", at);
          if (digit != std::string::npos) text[digit] = static_cast<char>('0' + below(10));
          break;
        }
        default: {  // moves a line
          const size_t begin = text.find('\n', at),
                       end = begin == std::string::npos ? begin : text.find('\n', begin + 1);
          if (end == std::string::npos) break;
          const std::string line = text.substr(begin, end - begin);
          text.erase(begin, end - begin);
          text.insert(below(text.size()), line);
          break;
        }
      }
      if (text.empty()) break;
    }
    Device device({.seed = 1, .checks = {}, .instruction_limit = 20'000});
    try {
      const Module& module = device.load(text, "damaged.ptx");
      ++loaded;
      const Kernel& kernel = module.kernel("test");
      const uint64_t memory = device.allocate(256);
      const std::vector<uint32_t> zeros(64);
      device.write(memory, zeros.data(), 256);
      const uint64_t out = device.allocate(256);
      device.launch(kernel, {.block = {32}}, out, memory);
      device.synchronize();
    } catch (const LoadError&) {
      ++refused;
    } catch (const Violation&) {
      ++violated;
    } catch (const std::invalid_argument&) {  // the kernel was renamed
    }
  }
  RecordProperty("loaded", static_cast<int>(loaded));
  EXPECT_GT(refused, 500u);
  EXPECT_GT(loaded, 100u);
  EXPECT_GT(violated, 20u);
}

}  // namespace
}  // namespace strata::gpu_tests
