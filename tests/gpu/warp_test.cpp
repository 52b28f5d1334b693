// Warp-wide instructions, divergence, barriers, calls and matrices.
#include <gtest/gtest.h>

#include <fmt/core.h>

#include <bit>
#include <cstdlib>
#include <fstream>
#include <map>
#include <numeric>
#include <sstream>

#include "matrices.h"
#include "snippet.h"

namespace strata::gpu_tests {
namespace {

const std::string kStart =
    "mov.u32 %r0, %tid.x;\nmul.wide.u32 %x0, %r0, 4;\nadd.s64 %x1, %out, %x0;\nadd.s64 %x0, %in, "
    "%x0;\nld.global.u32 %r1, [%x0];\n";
const std::string kEnd = "st.global.u32 [%x1], %r9;\n";

std::vector<uint32_t> scrambled(size_t n) {
  std::vector<uint32_t> words(n);
  for (size_t i = 0; i < n; ++i) words[i] = static_cast<uint32_t>((i * 2654435761u) >> 7) + 5;
  return words;
}

std::vector<uint32_t> run(const std::string& body, unsigned threads = 32) {
  return run_words(kStart + body + kEnd, threads, scrambled(threads), {threads, 1, 1});
}

TEST(PtxWarp, Shuffles) {
  const std::vector<uint32_t> in = scrambled(32);
  // By definition: c = clamp | segment mask << 8.
  const auto expected = [&](char mode, unsigned lane, unsigned b, unsigned c, bool* inside) {
    const unsigned clamp = c & 31, segment = c >> 8 & 31;
    const int highest = static_cast<int>((lane & segment) | (clamp & ~segment)),
              lowest = static_cast<int>(lane & segment);
    int from = 0;
    if (mode == 'u') from = static_cast<int>(lane) - static_cast<int>(b);
    if (mode == 'd') from = static_cast<int>(lane + b);
    if (mode == 'b') from = static_cast<int>(lane ^ b);
    if (mode == 'i') from = lowest | static_cast<int>(b & ~segment);
    *inside = mode == 'u' ? from >= highest : from <= highest;
    return in[*inside ? static_cast<unsigned>(from) : lane];
  };
  for (const auto& [name, width32] :
       {std::pair<const char*, unsigned>{"up", 0}, {"down", 31}, {"bfly", 31}, {"idx", 31}}) {
    for (const unsigned width : {32u, 8u}) {
      for (const unsigned by : {0u, 1u, 3u, 7u, 16u, 31u}) {
        const unsigned c = (32 - width) << 8 | width32;
        const std::vector<uint32_t> out = run(
            fmt::format("shfl.sync.{}.b32 %r9|%p1, %r1, {}, {}, -1;\n@!%p1 add.s32 %r9, %r9, 1000000000;\n",
                        name, by, c));
        for (unsigned lane = 0; lane < 32; ++lane) {
          bool inside = false;
          const uint32_t value = expected(name[0], lane, by, c, &inside);
          EXPECT_EQ(out[lane], value + (inside ? 0 : 1'000'000'000))
              << name << " " << by << " " << width << " lane " << lane;
        }
      }
    }
  }
  // Half of the warp, with its own mask.
  const std::vector<uint32_t> half =
      run("mov.u32 %r9, 0;\nsetp.lt.u32 %p1, %r0, 16;\n@%p1 shfl.sync.bfly.b32 %r9, %r1, 5, 31, 0xffff;\n");
  EXPECT_EQ(half[3], in[6]);
  EXPECT_EQ(half[20], 0u);
}

TEST(PtxWarp, Votes) {
  const std::string odd = "and.b32 %r2, %r0, 1;\nsetp.eq.u32 %p1, %r2, 1;\n";
  EXPECT_EQ(run(odd + "vote.sync.ballot.b32 %r9, %p1, -1;\n")[7], 0xaaaa'aaaau);
  EXPECT_EQ(run(odd + "vote.sync.ballot.b32 %r9, !%p1, -1;\n")[7], 0x5555'5555u);
  const auto vote = [&](const std::string& mode, const std::string& test) {
    return run("setp.lt.u32 %p1, %r0, " + test + ";\nvote.sync." + mode +
               ".pred %p2, %p1, -1;\nselp.u32 %r9, 1, 0, %p2;\n")[0];
  };
  EXPECT_EQ(vote("all", "32"), 1u);
  EXPECT_EQ(vote("all", "31"), 0u);
  EXPECT_EQ(vote("any", "1"), 1u);
  EXPECT_EQ(vote("any", "0"), 0u);
  EXPECT_EQ(vote("uni", "0"), 1u);
  EXPECT_EQ(vote("uni", "32"), 1u);
  EXPECT_EQ(vote("uni", "5"), 0u);
  EXPECT_EQ(run("activemask.b32 %r9;\n", 20)[3], 0xf'ffffu);
  EXPECT_EQ(run("setp.gt.u32 %p1, %r0, 3;\nmov.u32 %r9, 0;\n@%p1 activemask.b32 %r9;\n")[9], 0xffff'fff0u);
}

TEST(PtxWarp, MatchReduceElect) {
  const std::vector<uint32_t> groups = run("shr.u32 %r2, %r0, 3;\nmatch.any.sync.b32 %r9, %r2, -1;\n");
  for (unsigned lane = 0; lane < 32; ++lane) EXPECT_EQ(groups[lane], 0xffu << (lane / 8 * 8));
  EXPECT_EQ(run("mov.u32 %r2, 5;\nmatch.all.sync.b32 %r9|%p1, %r2, -1;\n@!%p1 trap;\n")[4], kAllLanes);
  EXPECT_EQ(run("match.all.sync.b32 %r9|%p1, %r0, -1;\n@%p1 trap;\n")[4], 0u);
  EXPECT_EQ(run("cvt.u64.u32 %x5, %r0;\nmatch.any.sync.b64 %r9, %x5, -1;\n")[4], 1u << 4);
  EXPECT_EQ(run("redux.sync.add.s32 %r9, %r0, -1;\n")[5], 31u * 16);
  EXPECT_EQ(run("sub.s32 %r2, %r0, 7;\nredux.sync.min.s32 %r9, %r2, -1;\n")[5], static_cast<uint32_t>(-7));
  EXPECT_EQ(run("sub.s32 %r2, %r0, 7;\nredux.sync.max.u32 %r9, %r2, -1;\n")[5], 0xffff'ffffu);
  EXPECT_EQ(run("redux.sync.or.b32 %r9, %r0, -1;\n")[5], 31u);
  EXPECT_EQ(run("redux.sync.xor.b32 %r9, %r0, -1;\n")[5], 0u);
  EXPECT_EQ(run("elect.sync %r9|%p1, -1;\n@%p1 add.s32 %r9, %r9, 100;\n")[0], 100u);
  EXPECT_EQ(run("elect.sync %r9|%p1, -1;\n@%p1 add.s32 %r9, %r9, 100;\n")[1], 0u);
}

TEST(PtxWarp, GroupsWithTheirOwnMasks) {
  // Groups of eight execute one instruction, each with its own mask.
  const std::string masks = "and.b32 %r2, %r0, 24;\nmov.u32 %r3, 255;\nshl.b32 %r3, %r3, %r2;\n";
  const std::vector<uint32_t> sums = run(masks + "redux.sync.add.u32 %r9, %r0, %r3;\n");
  const std::vector<uint32_t> votes =
      run(masks + "setp.gt.u32 %p1, %r0, 11;\nvote.sync.ballot.b32 %r9, %p1, %r3;\n");
  for (uint32_t lane = 0; lane < 32; ++lane) {
    EXPECT_EQ(sums[lane], 8 * (lane / 8 * 8) + 28);
    EXPECT_EQ(votes[lane], 0xfffff000u & (0xffu << lane / 8 * 8));
  }
}

TEST(PtxWarp, SpecialRegisters) {
  const std::vector<uint32_t> out = run_words(
      "mov.u32 %r0, %tid.x;\nmov.u32 %r1, %tid.y;\nmov.u32 %r2, %tid.z;\nmov.u32 %r3, %ntid.x;\nmov.u32 %r4, "
      "%ntid.y;\nmad.lo.s32 %r5, %r2, %r4, %r1;\n"
      "mad.lo.s32 %r5, %r5, %r3, %r0;\nmul.wide.u32 %x0, %r5, 16;\nadd.s64 %x0, %x0, %out;\nmov.u32 %r6, "
      "%laneid;\nmov.u32 %r7, %warpid;\n"
      "mov.u32 %r8, %lanemask_lt;\nmov.u32 %r9, %ntid.z;\nst.global.v4.u32 [%x0], {%r6, %r7, %r8, %r9};\n",
      4 * 48, {}, {4, 3, 4});
  for (uint32_t thread = 0; thread < 48; ++thread) {
    EXPECT_EQ(out[thread * 4], thread % 32);
    EXPECT_EQ(out[thread * 4 + 1], out[thread / 32 * 32 * 4 + 1]);
    EXPECT_EQ(out[thread * 4 + 2], (1u << thread % 32) - 1);
    EXPECT_EQ(out[thread * 4 + 3], 4u);
  }
  EXPECT_NE(out[1], out[32 * 4 + 1]);  // hardware chooses the warp numbers
}

TEST(PtxFlow, LoopsOfDifferentLength) {
  // Collatz steps: the lanes leave the loop at different times.
  const std::vector<uint32_t> out =
      run("add.s32 %r1, %r0, 1;\nmov.u32 %r9, 0;\nLOOP:\nsetp.eq.u32 %p1, %r1, 1;\n@%p1 bra DONE;\nadd.s32 "
          "%r9, %r9, 1;\nand.b32 %r2, %r1, 1;\n"
          "setp.eq.u32 %p2, %r2, 0;\n@%p2 bra EVEN;\nmad.lo.s32 %r1, %r1, 3, 1;\nbra.uni "
          "LOOP;\nEVEN:\nshr.u32 %r1, %r1, 1;\nbra LOOP;\nDONE:\n"
          "vote.sync.ballot.b32 %r3, %p1, -1;\nadd.s32 %r4, %r3, 1;\nadd.s32 %r9, %r9, %r4;\n");
  for (uint32_t lane = 0; lane < 32; ++lane) {
    uint32_t steps = 0;
    for (uint64_t n = lane + 1; n != 1; ++steps) n = n % 2 == 0 ? n / 2 : 3 * n + 1;
    EXPECT_EQ(out[lane], steps);
  }
}

TEST(PtxFlow, NestedBranchesMeetAgain) {
  for (uint64_t seed = 1; seed < 6; ++seed) {
    const std::vector<uint32_t> out =
        run_words(kStart +
                      "mov.u32 %r9, 0;\nsetp.lt.u32 %p1, %r0, 16;\n@%p1 bra A;\nadd.s32 %r9, %r9, "
                      "1;\nsetp.lt.u32 %p2, %r0, 24;\n@%p2 bra B;\nadd.s32 %r9, %r9, 10;\n"
                      "B:\nactivemask.b32 %r2;\nsetp.eq.u32 %p3, %r2, 0xffff0000;\n@%p3 add.s32 %r9, %r9, "
                      "100;\nbra.uni C;\nA:\nadd.s32 %r9, %r9, 2;\nC:\n"
                      "activemask.b32 %r2;\nsetp.eq.u32 %p3, %r2, -1;\n@%p3 add.s32 %r9, %r9, 1000;\n" +
                      kEnd,
                  32, scrambled(32), {32, 1, 1}, "", 1, seed);
    for (uint32_t lane = 0; lane < 32; ++lane)
      EXPECT_EQ(out[lane], 1000u + (lane < 16 ? 2 : lane < 24 ? 101 : 111));
  }
}

TEST(PtxFlow, EarlyExitIndexedBranchAndCalls) {
  const std::vector<uint32_t> out =
      run("mov.u32 %r9, 7;\nst.global.u32 [%x1], %r9;\nsetp.gt.u32 %p1, %r0, 20;\n@%p1 exit;\nand.b32 %r2, "
          "%r0, 3;\nT: .branchtargets L0, L1, L2, L1;\n"
          "brx.idx %r2, T;\nL0:\nmov.u32 %r9, 100;\nbra E;\nL1:\nmov.u32 %r9, 101;\nbra E;\nL2:\nmov.u32 "
          "%r9, 102;\nE:\nbar.sync 0;\n");
  for (uint32_t lane = 0; lane < 32; ++lane)
    EXPECT_EQ(out[lane], lane > 20 ? 7 : lane % 4 == 0 ? 100 : lane % 4 == 2 ? 102 : 101);

  const std::string function =
      ".func (.param .b32 result) twice(.param .b32 a, .param .b64 where)\n{\n.reg .b32 %r<4>;\n.reg .b64 "
      "%x<2>;\n.reg .pred %p<2>;\n"
      "ld.param.u32 %r1, [a];\nld.param.u64 %x1, [where];\nsetp.gt.u32 %p1, %r1, 15;\n@%p1 bra BIG;\nadd.s32 "
      "%r2, %r1, %r1;\nst.param.b32 [result], %r2;\n"
      "st.u32 [%x1], %r2;\nret;\nBIG:\nst.param.b32 [result], 1;\nst.u32 [%x1], 3;\nret;\n}\n";
  const std::string call =
      "{\n.param .b32 p0;\nst.param.b32 [p0], {};\n.param .b64 p1;\nst.param.b64 [p1], %x6;\n.param .b32 "
      "r0;\ncall.uni (r0), twice, (p0, p1);\n"
      "ld.param.b32 %r9, [r0];\n}\n";
  const std::vector<uint32_t> called =
      run_words(kStart + ".local .align 4 .b8 slot[4];\nmov.u64 %x5, slot;\ncvta.local.u64 %x6, %x5;\n" +
                    fmt::format(fmt::runtime("{{" + call.substr(1, call.size() - 3) + "}}"), "%r0") +
                    "ld.local.u32 %r3, [%x5];\nadd.s32 %r9, %r9, %r3;\n" + kEnd,
                32, scrambled(32), {32, 1, 1}, function);
  for (uint32_t lane = 0; lane < 32; ++lane) EXPECT_EQ(called[lane], lane > 15 ? 4 : 4 * lane);
}

TEST(PtxBarrier, Reductions) {
  const auto reduce = [&](const std::string& instruction) {
    return run_words(kStart + "setp.lt.u32 %p1, %r0, 40;\n" + instruction + kEnd, 64, scrambled(64),
                     {64, 1, 1});
  };
  EXPECT_EQ(reduce("bar.red.popc.u32 %r9, 0, %p1;\n")[63], 40u);
  EXPECT_EQ(reduce("bar.red.popc.u32 %r9, 1, 64, !%p1;\n")[63], 24u);
  EXPECT_EQ(reduce("bar.red.and.pred %p2, 0, %p1;\nselp.u32 %r9, 1, 0, %p2;\n")[0], 0u);
  EXPECT_EQ(reduce("barrier.cta.red.or.pred %p2, 0, %p1;\nselp.u32 %r9, 1, 0, %p2;\n")[63], 1u);
}

TEST(PtxBarrier, NamedBarriersOfWarps) {
  // Warp 1 produces, warp 0 consumes; warp 2 meets neither.
  const std::string body = kStart +
                           "mov.u32 %r9, 0;\nshl.b32 %r2, %r0, 2;\nand.b32 %r2, %r2, 127;\nmov.u32 %r3, "
                           "tile;\nadd.s32 %r3, %r3, %r2;\nshr.u32 %r4, %r0, 5;\n"
                           "setp.eq.u32 %p1, %r4, 0;\nsetp.eq.u32 %p2, %r4, 1;\n@%p1 bra CONSUME;\n@!%p2 bra "
                           "DONE;\nst.shared.u32 [%r3], %r0;\nbar.arrive 3, 64;\nbra DONE;\n"
                           "CONSUME:\nbar.sync 3, 64;\nld.shared.u32 %r9, [%r3];\nDONE:\n" +
                           kEnd;
  for (uint64_t seed = 1; seed < 5; ++seed) {
    const std::vector<uint32_t> out =
        run_words(body, 96, scrambled(96), {96, 1, 1}, ".shared .align 4 .b8 tile[128];\n", 1, seed);
    for (uint32_t thread = 0; thread < 96; ++thread) EXPECT_EQ(out[thread], thread < 32 ? thread + 32 : 0);
  }
}

TEST(PtxBarrier, HalvesOfAWarpMeet) {
  // Without .aligned, lanes of one warp may arrive on different paths.
  const std::string body =
      kStart +
      "shl.b32 %r2, %r0, 2;\nmov.u32 %r3, tile;\nadd.s32 %r2, %r2, %r3;\nxor.b32 %r4, %r0, 16;\nshl.b32 %r4, "
      "%r4, 2;\n"
      "add.s32 %r4, %r4, %r3;\nst.shared.u32 [%r2], %r0;\nsetp.lt.u32 %p1, %r0, 16;\n@%p1 bra "
      "A;\nbarrier.sync 1, 32;\n"
      "ld.shared.u32 %r9, [%r4];\nbra C;\nA:\nbarrier.cta.sync 1, 32;\nld.shared.u32 %r9, [%r4];\nC:\n" +
      kEnd;
  for (uint64_t seed = 1; seed < 5; ++seed) {
    const std::vector<uint32_t> out =
        run_words(body, 32, scrambled(32), {32, 1, 1}, ".shared .align 4 .b8 tile[128];\n", 1, seed);
    for (uint32_t lane = 0; lane < 32; ++lane) EXPECT_EQ(out[lane], lane ^ 16);
  }
}

TEST(PtxFlow, SharedVariablesOfFunctionsAreOne) {
  const std::string function =
      ".func (.param .b32 old) swap(.param .b32 value)\n{\n.shared .align 4 .u32 kept;\n.reg .b32 %r<4>;\n"
      "ld.param.u32 %r1, [value];\natom.shared.exch.b32 %r2, [kept], %r1;\nst.param.b32 [old], "
      "%r2;\nret;\n}\n"
      ".func put(.param .b32 value)\n{\n.param .b32 a;\n.param .b32 b;\n.reg .b32 %r<2>;\nld.param.u32 %r1, "
      "[value];\nst.param.b32 [a], %r1;\n"
      "call (b), swap, (a);\n}\n";
  // The first call reads a word that was never written; the report names it, so the variable exists once per
  // block.
  EXPECT_EQ(violation_of("{\n.param .b32 a;\n.param .b32 b;\nst.param.b32 [a], 5;\ncall (b), swap, (a);\n}",
                         {1, 1, 1}, function)
                .allocation,
            "kept");
}

TEST(PtxMatrix, Mma) {
  uint32_t state = 12345;
  for (const MatrixShape& shape : matrix_shapes()) {
    MatrixBatch batch{{}, {}, {}, 4};
    std::vector<double> a, b, c;
    const auto draw = [&](size_t count, Format format, std::vector<double>* values) {
      std::vector<uint32_t> all;
      while (all.size() < count) {
        state = state * 1664525 + 1013904223;
        values->push_back(static_cast<int>(state >> 24) % 16 - 8);
        all.push_back(narrow(values->back(), format, Rounding::kNearest));
      }
      return all;
    };
    batch.a = draw(batch.count * 16 * shape.depth, shape.format, &a);
    batch.b = draw(batch.count * shape.depth * 8, shape.format, &b);
    batch.c = draw(batch.count * kMatrixResults, {8, 23}, &c);
    for (const MmaSum sum : {MmaSum::kEachProduct, MmaSum::kHopper}) {
      const std::vector<uint32_t> d = multiply_matrices(*make_device({.mma = sum}), shape, batch);
      for (size_t n = 0; n < d.size(); ++n) {
        const size_t row = n / 8, matrix = n / kMatrixResults, column = n % 8;
        double expected = c[n];
        for (size_t k = 0; k < shape.depth; ++k)
          expected += a[row * shape.depth + k] * b[(matrix * shape.depth + k) * 8 + column];
        ASSERT_EQ(as_float(d[n]), expected) << shape.name << " " << shape.type << ", result " << n;
      }
    }
  }
}

// Operands and results of an H200, in lines "shape type a… b… c d".
TEST(PtxMatrix, RecordedSums) {
  const char* folder = std::getenv("STRATA_GPU_KERNELS");
  std::ifstream file(fmt::format("{}/mma_h200.txt", folder == nullptr ? STRATA_GPU_SAMPLES : folder));
  std::map<std::string, std::vector<std::vector<uint32_t>>> recorded;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with('#')) continue;
    std::istringstream words(line);
    std::string name, type;
    words >> name >> type >> std::hex;
    std::vector<uint32_t>& values = recorded[name + type].emplace_back();
    for (uint32_t value = 0; words >> value;) values.push_back(value);
  }
  const std::unique_ptr<GpuDevice> device = make_device({.mma = MmaSum::kHopper});
  if (!device->runs("sm_90a")) GTEST_SKIP() << "recorded on sm_90";
  for (const MatrixShape& shape : matrix_shapes()) {
    const std::vector<std::vector<uint32_t>>& lines = recorded[shape.name + shape.type];
    ASSERT_GT(lines.size(), 40u);
    const size_t depth = shape.depth, count = (lines.size() + 31) / 32 * 4;
    MatrixBatch batch{std::vector<uint32_t>(count * 16 * depth), std::vector<uint32_t>(count * depth * 8),
                      std::vector<uint32_t>(count * kMatrixResults), count};
    // Eight per matrix, on its diagonal.
    for (size_t n = 0; n < lines.size(); ++n) {
      const size_t matrix = n / 8, place = n % 8;
      for (size_t k = 0; k < depth; ++k) {
        batch.a[(matrix * 16 + place) * depth + k] = lines[n][k];
        batch.b[(matrix * depth + k) * 8 + place] = lines[n][depth + k];
      }
      batch.c[matrix * kMatrixResults + place * 9] = lines[n][2 * depth];
    }
    const std::vector<uint32_t> d = multiply_matrices(*device, shape, batch);
    for (size_t n = 0; n < lines.size(); ++n) {
      EXPECT_EQ(d[n / 8 * kMatrixResults + n % 8 * 9], lines[n].back())
          << shape.name << " " << shape.type << ", line " << n;
    }
  }
}

TEST(PtxMatrix, LoadAndStore) {
  // Shared memory holds 32 rows of 8 values of 16 bits; value = row * 8 + column.
  const std::string fill =
      "mov.u32 %r0, %tid.x;\nshl.b32 %r1, %r0, 4;\nmov.u32 %r2, tile;\nadd.s32 %r2, %r2, %r1;\nmul.lo.u32 "
      "%r3, %r0, 0x80008;\nadd.s32 %r4, %r3, 0x10000;\n"
      "add.s32 %r5, %r3, 0x30002;\nadd.s32 %r6, %r3, 0x50004;\nadd.s32 %r7, %r3, 0x70006;\nst.shared.v4.u32 "
      "[%r2], {%r4, %r5, %r6, %r7};\nbar.warp.sync -1;\n"
      "mul.wide.u32 %x1, %r0, 16;\nadd.s64 %x1, %x1, %out;\n";
  const std::string tile = ".shared .align 16 .b8 tile[512];\n";
  const auto value = [](unsigned row, unsigned column) { return row * 8 + column; };
  const std::vector<uint32_t> four =
      run_words(fill +
                    "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r10, %r11, %r12, %r13}, "
                    "[%r2];\nst.global.v4.u32 [%x1], {%r10, %r11, %r12, %r13};\n",
                128, {}, {32, 1, 1}, tile);
  const std::vector<uint32_t> turned =
      run_words(fill +
                    "ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%r10, %r11}, [%r2];\nst.global.v4.u32 "
                    "[%x1], {%r10, %r11, 0, 0};\n",
                128, {}, {32, 1, 1}, tile);
  for (unsigned lane = 0; lane < 32; ++lane) {
    for (unsigned matrix = 0; matrix < 4; ++matrix) {
      const unsigned row = matrix * 8 + lane / 4, column = lane % 4 * 2;
      EXPECT_EQ(four[lane * 4 + matrix], value(row, column) | value(row, column + 1) << 16);
      if (matrix > 1) continue;
      EXPECT_EQ(turned[lane * 4 + matrix],
                value(matrix * 8 + column, lane / 4) | value(matrix * 8 + column + 1, lane / 4) << 16);
    }
  }
  // ldmatrix loads what stmatrix of the same form stores.
  const std::vector<uint32_t> back = run_words(
      fill +
          "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r10}, [%r2];\nbar.warp.sync "
          "-1;\nstmatrix.sync.aligned.m8n8.x1.trans.shared.b16 [%r2], {%r10};\nbar.warp.sync -1;\n"
          "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r11}, [%r2];\nmovmatrix.sync.aligned.m8n8.trans.b16 "
          "%r12, %r11;\nst.global.v4.u32 [%x1], {%r10, %r11, %r12, 0};\n",
      128, {}, {32, 1, 1}, tile);
  for (unsigned lane = 0; lane < 32; ++lane) {
    EXPECT_EQ(back[lane * 4 + 1], value(lane % 4 * 2, lane / 4) | value(lane % 4 * 2 + 1, lane / 4) << 16);
    EXPECT_EQ(back[lane * 4 + 2], back[lane * 4]);
  }
}

}  // namespace
}  // namespace strata::gpu_tests
