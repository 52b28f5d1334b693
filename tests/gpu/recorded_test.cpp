// Results of an NVIDIA H200 where PTX leaves them undefined or the hardware differs from the PTX ISA.
#include <gtest/gtest.h>

#include <fmt/core.h>

#include "snippet.h"

namespace strata::gpu_tests {
namespace {

// Tiny: below the least normal number after rounding with an unbounded exponent.
TEST(PtxFloat, RecordedFlushes) {
  const uint64_t least = 0x0080'0000, minus_least = 0x8080'0000;
  expect_rows("fma.rn.ftz.f32 %D, %A, %B, %C;", {32, 32, 32, 32},
              {{{minus_least, least, least}, least},
               {{least, 0x8100'0000, least}, least},
               {{0x9985'532e, minus_least, minus_least}, minus_least}});
  expect_rows(
      "fma.rm.ftz.f32 %D, %A, %B, %C;", {32, 32, 32, 32},
      {{{least, least, minus_least}, minus_least}, {{minus_least, 0x8100'0000, minus_least}, minus_least}});
  expect_rows("fma.rp.ftz.sat.f32 %D, %A, %B, %C;", {32, 32, 32, 32},
              {{{0x0102'8e7d, 0x8080'0001, least}, least}});
  expect_rows("mad.rp.ftz.f32 %D, %A, %B, %C;", {32, 32, 32, 32}, {{{least, 0x8100'0000, least}, least}});
  expect_rows("mul.rn.ftz.f16 %D, %A, %B;", {16, 16, 16}, {{{0x042b, 0x3bad}, 0x0400}});
  expect_rows("mul.rn.ftz.sat.f16 %D, %A, %B;", {16, 16, 16}, {{{0x3680, 0x08ec}, 0x0400}});
  expect_rows("mul.rn.ftz.f16x2 %D, %A, %B;", {32, 32, 32}, {{{0x57b0'86d2, 0xd7b0'38b1}, 0xf363'8400}});
  expect_rows("fma.rn.ftz.relu.f16 %D, %A, %B, %C;", {16, 16, 16, 16}, {{{0x0400, 0x8800, 0x0400}, 0x0400}});
  expect_rows("fma.rn.ftz.f16x2 %D, %A, %B, %C;", {32, 32, 32, 32},
              {{{0x4590'8800, 0x64f9'87fe, 0xfc7e'8400}, 0x7fff'8400}});
}

TEST(PtxFloat, RecordedNan) {
  const uint64_t signalling = 0x7ff0'0000'0000'0001, negative = 0xfff0'0000'0000'0001;
  const uint64_t quiet = 0x7ff8'0000'0000'0001, negative_quiet = 0xfff8'0000'0000'0001;
  const uint64_t other = 0x7ff8'0000'0000'0015;
  expect_rows("sub.rn.f64 %D, %A, %B;", {64, 64, 64},
              {{{negative, signalling}, quiet}, {{other, signalling}, quiet}, {{other, 0}, other}});
  expect_rows("fma.rn.f64 %D, %A, %B, %C;", {64, 64, 64, 64},
              {{{negative, signalling, 0}, quiet}, {{signalling, negative, 0}, negative_quiet}});
  for (const char* name : {"min", "max"}) {
    expect_rows(fmt::format("{}.f64 %D, %A, %B;", name), {64, 64, 64},
                {{{signalling, signalling}, quiet}, {{~uint64_t{0}, negative}, negative_quiet}});
  }
  for (const char* name : {"neg", "abs"}) {
    expect_rows(fmt::format("{}.f64 %D, %A;", name), {64, 64},
                {{{signalling}, quiet}, {{0xfff8'0000'0000'0015}, 0xfff8'0000'0000'0015}});
  }
}

TEST(PtxConversion, RecordedNan) {
  const uint64_t signalling = 0x7ff0'0000'0000'0001, negative = 0xfff8'0000'0000'0000;
  expect_rows("cvt.rn.f32.f64 %D, %A;", {32, 64}, {{{signalling}, 0x7fc0'0000}, {{negative}, 0xffc0'0000}});
  expect_rows("cvt.rp.f16.f64 %D, %A;", {16, 64},
              {{{signalling}, 0x7e00}, {{negative}, 0xfe00}, {{~uint64_t{0}}, 0xffff}});
  expect_rows("cvt.rz.bf16.f64 %D, %A;", {16, 64}, {{{signalling}, 0x7fc0}, {{negative}, 0xffc0}});
  expect_rows("cvt.rzi.f64.f64 %D, %A;", {64, 64}, {{{signalling}, 0x7ff8'0000'0000'0001}});
  expect_rows("cvt.ftz.f64.f32 %D, %A;", {64, 32},
              {{{0x7f80'0001}, 0x7fff'ffff'e000'0000}, {{0xffc0'0015}, 0x7fff'ffff'e000'0000}});
  expect_rows("cvt.rna.tf32.f32 %D, %A;", {32, 32},
              {{{0x7f80'0001}, 0x7f80'0000}, {{0x7f97'3cf6}, 0x7f97'2000}, {{0xffff'ffff}, 0xffff'e000}});
  expect_rows("cvt.rna.satfinite.tf32.f32 %D, %A;", {32, 32},
              {{{0x7f80'0001}, 0x7f7f'e000}, {{0xffbe'9097}, 0xffbe'6000}, {{0x7fc0'0000}, 0x7fbf'e000}});
}

TEST(PtxConversion, RecordedZeros) {
  const uint64_t minus_zero = 0x8000'0000;
  expect_rows("cvt.rn.relu.tf32.f32 %D, %A;", {32, 32}, {{{minus_zero}, 0}});
  expect_rows("cvt.rz.relu.bf16.f32 %D, %A;", {16, 32}, {{{minus_zero}, 0}});
  expect_rows("cvt.rn.relu.f16x2.f32 %D, %A, %B;", {32, 32, 32}, {{{minus_zero, 0x7f7f'ffff}, 0x7c00}});
  // .ftz does not flush on conversion to f16.
  expect_rows("cvt.rp.ftz.f16.f32 %D, %A;", {16, 32}, {{{1}, 1}, {{0x007e'cfd1}, 1}});
  expect_rows("cvt.rm.ftz.f16.f32 %D, %A;", {16, 32}, {{{0x8000'0001}, 0x8001}});
}

// Positions and lengths of 64-bit fields are not truncated to eight bits.
TEST(PtxBits, RecordedFields) {
  expect_rows("bfe.u64 %D, %A, %B, %C;", {64, 64, 32, 32},
              {{{0x030a'fdfa'75b8'e069, 0x17, 0xa72e'9b1b}, 0x6'15fb'f4eb},
               {{0x7ed5'1a41'9020'50a3, 0x891b'c13b, 0x4680'fe8e}, 0}});
  expect_rows("bfe.s64 %D, %A, %B, %C;", {64, 64, 32, 32},
              {{{uint64_t{1} << 63, 0xa6a4'692c, 0x3f}, ~uint64_t{0}},
               {{0x00f9'aa30'd009'7e0e, 0x15b1'5533, 0x1a}, 0},
               {{0x0400'e70e'cb94, 6, 0xa7c2'b402}, 0x10'039c'3b2e}});
  expect_rows("bfi.b64 %D, %A, %B, %C, %E;", {64, 64, 64, 32, 32},
              {{{0x9e88'1e8c'1d94'a8cc, 0xffff'ffff'd254'e2c5, 0x9455'9020, 0x11}, 0xffff'ffff'd254'e2c5},
               {{5, 0xfb9d'fe58'5368'fbbd, 0x7e72'5100, 0x45}, 0xfb9d'fe58'5368'fbbd}});
}

// In global memory fp32 sums flush denormals, and f64 sums preserve a signalling NaN.
TEST(PtxMemory, RecordedSums) {
  expect_rows("st.global.b32 [%x1], %A; atom.global.add.f32 %r5, [%x1], %B; ld.global.b32 %D, [%x1];",
              {32, 32, 32},
              {{{1, 0}, 0},
               {{0x8000'0002, 0}, 0},
               {{0x800f'3c8c, 0x007b'b15a}, 0},
               {{0x0028'4c3e, 0x084e'f1d9}, 0x084e'f1d9}});
  expect_rows("st.global.b32 [%x1], %A; red.global.add.f32 [%x1], %B; ld.global.b32 %D, [%x1];", {32, 32, 32},
              {{{0x8080'fc72, 0x8058'a3af}, 0x8080'fc72}, {{0x8000'0001, 0x0102'2e39}, 0x0102'2e39}});
  expect_rows("st.global.b64 [%x1], %A; red.global.add.f64 [%x1], %B; ld.global.b64 %D, [%x1];", {64, 64, 64},
              {{{0x7ff0'0000'0000'0001, 0}, 0x7ff0'0000'0000'0001},
               {{0x4086'17cb'c7d4'15b3, 0xfff0'0000'0000'0001}, 0xfff0'0000'0000'0001}});
}

}  // namespace
}  // namespace strata::gpu_tests
