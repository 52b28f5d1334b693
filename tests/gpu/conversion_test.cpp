// cvt, setp, set, selp, slct, mov.
#include <gtest/gtest.h>

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "reference.h"
#include "snippet.h"

namespace strata::gpu_tests {
namespace {

TEST(PtxConversion, Integers) {
  expect_rows("cvt.u64.u32 %D, %A;", {64, 32}, {{{0xffff'fffe}, 0xffff'fffe}});
  expect_rows("cvt.s64.s32 %D, %A;", {64, 32}, {{{0xffff'fffe}, ~uint64_t{1}}});
  expect_rows("cvt.u32.u64 %D, %A;", {32, 64}, {{{0x1'2345'6789}, 0x2345'6789}});
  expect_rows("cvt.s32.s16 %D, %A;", {32, 16}, {{{0x8000}, 0xffff'8000}});
  expect_rows("cvt.u16.u32 %D, %A;", {16, 32}, {{{0x1'2345}, 0x2345}});
  // Only the low bits of a wider register are read; a narrower result is extended according to its type.
  expect_rows("cvt.s32.s8 %D, %A;", {32, 32}, {{{0x1234'5680}, 0xffff'ff80}, {{0x7f}, 0x7f}});
  expect_rows("cvt.u32.u8 %D, %A;", {32, 32}, {{{0x1234'5680}, 0x80}});
  expect_rows("cvt.s8.s32 %D, %A;", {32, 32}, {{{0x180}, 0xffff'ff80}});
  expect_rows("cvt.sat.u8.s32 %D, %A;", {32, 32}, {{{300}, 255}, {{0xffff'ffff}, 0}, {{17}, 17}});
  expect_rows("cvt.sat.s8.s32 %D, %A;", {32, 32}, {{{300}, 127}, {{0xffff'ff00}, 0xffff'ff80}});
  expect_rows("cvt.sat.u32.s64 %D, %A;", {32, 64}, {{{~uint64_t{0}}, 0}, {{uint64_t{1} << 40}, 0xffff'ffff}});
}

TEST(PtxConversion, FloatToInteger) {
  const std::vector<uint64_t> values = {bits(0.5f),          bits(1.5f),  bits(2.5f),  bits(-0.5f),
                                        bits(-1.5f),         bits(-2.7f), bits(1e20f), bits(-1e20f),
                                        bits(2147483520.0f), 0x7fc0'0000};
  for (const auto& [name, function] :
       {std::pair<const char*, double (*)(double)>{"rni", [](double x) { return std::nearbyint(x); }},
        {"rzi", [](double x) { return std::trunc(x); }},
        {"rmi", [](double x) { return std::floor(x); }},
        {"rpi", [](double x) { return std::ceil(x); }}}) {
    const auto round = function;
    expect_function(fmt::format("cvt.{}.s32.f32 %D, %A;", name), {32, 32}, {values},
                    [&](const auto& o) -> uint64_t {
                      const double x = as_float(o[0]);
                      if (std::isnan(x)) return 0;
                      return static_cast<uint32_t>(
                          static_cast<int32_t>(std::clamp(round(x), -2147483648.0, 2147483647.0)));
                    });
    expect_function(
        fmt::format("cvt.{}.f32.f32 %D, %A;", name), {32, 32}, {values}, [&](const auto& o) -> uint64_t {
          const float x = as_float(o[0]);
          return std::isnan(x) ? 0x7fff'ffff : bits(std::copysign(static_cast<float>(round(x)), x));
        });
  }
  expect_rows("cvt.rzi.u32.f32 %D, %A;", {32, 32},
              {{{bits(-5.0f)}, 0}, {{bits(4294967040.0f)}, 4294967040u}, {{bits(5e9f)}, 0xffff'ffff}});
  expect_rows("cvt.rzi.s64.f64 %D, %A;", {64, 64},
              {{{bits(-1.9)}, ~uint64_t{0}},
               {{bits(1e30)}, 0x7fff'ffff'ffff'ffff},
               {{bits(9007199254740993.0)}, 9007199254740992u}});
  expect_rows("cvt.rni.u64.f32 %D, %A;", {64, 32},
              {{{bits(1e30f)}, ~uint64_t{0}}, {{0x7f80'0001}, uint64_t{1} << 63}});
  expect_rows("cvt.rni.s16.f64 %D, %A;", {16, 64}, {{{0x7ff0'0000'0000'0001}, 0x8000}});
  expect_rows("cvt.rzi.ftz.s32.f32 %D, %A;", {32, 32}, {{{bits(1e-40f)}, 0}});
  expect_rows("cvt.rpi.ftz.s32.f32 %D, %A;", {32, 32}, {{{bits(1e-40f)}, 0}});
  expect_rows("cvt.rpi.s32.f32 %D, %A;", {32, 32}, {{{bits(1e-40f)}, 1}});
}

TEST(PtxConversion, IntegerToFloat) {
  expect_rows(
      "cvt.rn.f32.s32 %D, %A;", {32, 32},
      {{{0xffff'ffff}, bits(-1.0f)}, {{16777217}, bits(16777216.0f)}, {{16777219}, bits(16777220.0f)}});
  expect_rows("cvt.rz.f32.s32 %D, %A;", {32, 32},
              {{{16777219}, bits(16777218.0f)}, {{static_cast<uint32_t>(-16777219)}, bits(-16777218.0f)}});
  expect_rows("cvt.rm.f32.s32 %D, %A;", {32, 32}, {{{static_cast<uint32_t>(-16777217)}, bits(-16777218.0f)}});
  expect_rows("cvt.rp.f32.u32 %D, %A;", {32, 32}, {{{16777217}, bits(16777218.0f)}});
  expect_rows("cvt.rn.f32.u32 %D, %A;", {32, 32}, {{{0xffff'ffff}, bits(4294967296.0f)}});
  // Converting first to double and then to float would round twice.
  expect_rows("cvt.rn.f32.u64 %D, %A;", {32, 64}, {{{0x8000'0080'0000'0001}, bits(0x1.000002p63f)}});
  expect_rows("cvt.rn.f64.s64 %D, %A;", {64, 64},
              {{{~uint64_t{0}}, bits(-1.0)}, {{0x0020'0000'0000'0001}, bits(9007199254740992.0)}});
  expect_rows("cvt.rn.f16.s32 %D, %A;", {16, 32}, {{{2049}, 0x6800}, {{70000}, 0x7c00}});
  expect_rows("cvt.rn.bf16.u64 %D, %A;", {16, 64},
              {{{0x8080'0000'0000'0001}, 0x5f01}, {{0x8080'0000'0000'0000}, 0x5f00}});
}

TEST(PtxConversion, Floats) {
  std::vector<uint64_t> values = floats();
  for (const float one : {65519.0f, 65520.0f, 0x1p-25f, 0x1.000002p-25f, 0x1.8p-24f, 1.00048828125f,
                          1.00146484375f, 1.00390625f, 1.01171875f, 3.39e38f}) {
    values.push_back(bits(one));
    values.push_back(bits(-one));
  }
  for (const auto& [type, format] :
       {std::pair<std::string, SmallFormat>{"f16", kF16Format}, {"bf16", kBf16Format}}) {
    const SmallFormat f = format;
    const std::string name = type;
    for (const char mode : {'n', 'z'}) {
      expect_function(fmt::format("cvt.r{}.{}.f32 %D, %A;", mode, name), {16, 32}, {values},
                      [&](const auto& o) { return small_bits(as_float(o[0]), f, mode); });
      expect_function(fmt::format("cvt.r{}.{}x2.f32 %D, %A, %B;", mode, name), {32, 32, 32},
                      {values, {bits(1.5f), bits(-0.1f)}}, [&](const auto& o) {
                        return uint64_t{small_bits(as_float(o[0]), f, mode)} << 16 |
                               small_bits(as_float(o[1]), f, mode);
                      });
    }
    std::vector<uint64_t> all;
    for (uint64_t one = 0; one < 65536; one += 7) all.push_back(one);
    expect_function(fmt::format("cvt.f32.{} %D, %A;", name), {32, 16}, {all}, [&](const auto& o) -> uint64_t {
      const double value = small_value(static_cast<uint32_t>(o[0]), f);
      if (name == "bf16") return o[0] << 16;  // NaN too
      return std::isnan(value) ? 0x7fff'ffff : bits(static_cast<float>(value));
    });
  }
  expect_rows("cvt.rn.relu.bf16.f32 %D, %A;", {16, 32},
              {{{bits(-1.0f)}, 0}, {{bits(2.0f)}, 0x4000}, {{0x7fc0'0000}, 0x7fff}});
  expect_rows("cvt.rn.satfinite.bf16.f32 %D, %A;", {16, 32},
              {{{bits(-3.4e38f)}, 0xff7f}, {{bits(2.0f)}, 0x4000}, {{0x7fc0'0000}, 0x7fff}});
  expect_rows("cvt.rz.relu.satfinite.f16x2.f32 %D, %A, %B;", {32, 32, 32},
              {{{bits(-1e10f), bits(1e10f)}, 0x0000'7bff}});
  expect_rows("cvt.rn.relu.f16x2.f32 %D, %A, %B;", {32, 32, 32}, {{{bits(-1.0f), bits(1.0f)}, 0x0000'3c00}});
  expect_rows("cvt.f64.f32 %D, %A;", {64, 32}, {{{bits(0.1f)}, bits(static_cast<double>(0.1f))}});
  expect_rows("cvt.rn.f32.f64 %D, %A;", {32, 64},
              {{{bits(0.1)}, bits(0.1f)}, {{bits(1e300)}, bits(std::numeric_limits<float>::infinity())}});
  expect_rows("cvt.rz.f32.f64 %D, %A;", {32, 64},
              {{{bits(1e300)}, bits(std::numeric_limits<float>::max())},
               {{bits(0x1.fffffffp0)}, bits(0x1.fffffep0f)}});
  expect_rows(
      "cvt.sat.f32.f32 %D, %A;", {32, 32},
      {{{bits(3.0f)}, bits(1.0f)}, {{bits(-3.0f)}, 0}, {{0x7fc0'0000}, 0}, {{bits(0.25f)}, bits(0.25f)}});
  expect_rows("cvt.ftz.f32.f32 %D, %A;", {32, 32}, {{{bits(-1e-40f)}, bits(-0.0f)}});
  // tf32: ten bits of mantissa, ties away from zero.
  expect_rows("cvt.rna.tf32.f32 %D, %A;", {32, 32},
              {{{0x3f80'1000}, 0x3f80'2000}, {{0xbf80'0fff}, 0xbf80'0000}, {{bits(1.0f)}, bits(1.0f)}});
  expect_rows("cvt.rn.tf32.f32 %D, %A;", {32, 32},
              {{{0x3f80'1000}, 0x3f80'0000}, {{0x3f80'3000}, 0x3f80'4000}});
}

TEST(PtxSelection, Compare) {
  using Compare = bool (*)(float, float);
  const std::vector<std::pair<std::string, Compare>> ordered = {{"eq", [](float a, float b) { return a == b; }},
                                                                {"ne", [](float a, float b) { return a < b || a > b; }},
                                                                {"lt", [](float a, float b) { return a < b; }},
                                                                {"le", [](float a, float b) { return a <= b; }},
                                                                {"gt", [](float a, float b) { return a > b; }},
                                                                {"ge", [](float a, float b) { return a >= b; }}};
  for (const auto& [name, function] : ordered) {
    const Compare compare = function;
    expect_function(fmt::format("setp.{}.f32 %D, %A, %B;", name), {1, 32, 32}, {floats(), floats()},
                    [&](const auto& o) -> uint64_t { return compare(as_float(o[0]), as_float(o[1])); });
    expect_function(fmt::format("setp.{}u.f32 %D, %A, %B;", name), {1, 32, 32}, {floats(), floats()},
                    [&](const auto& o) -> uint64_t {
                      return std::isnan(as_float(o[0])) || std::isnan(as_float(o[1])) ||
                             compare(as_float(o[0]), as_float(o[1]));
                    });
    for (const unsigned width : {16u, 32u, 64u}) {
      const auto number = [&](uint64_t operand, bool is_signed) {
        return is_signed
                   ? static_cast<__int128>(static_cast<int64_t>(operand << (64 - width)) >> (64 - width))
                   : static_cast<__int128>(operand);
      };
      for (const bool is_signed : {false, true}) {
        expect_function(fmt::format("setp.{}.{}{} %D, %A, %B;", name, is_signed ? 's' : 'u', width),
                        {1, width, width}, {integers(width), integers(width)},
                        [&](const auto& o) -> uint64_t {
                          const __int128 a = number(o[0], is_signed), b = number(o[1], is_signed);
                          return compare(a < b ? -1.0f : a > b ? 1.0f : 0.0f, 0.0f);
                        });
      }
    }
  }
  expect_rows("setp.num.f32 %D, %A, %B;", {1, 32, 32},
              {{{bits(1.0f), bits(2.0f)}, 1}, {{0x7fc0'0000, bits(2.0f)}, 0}});
  expect_rows("setp.nan.f32 %D, %A, %B;", {1, 32, 32},
              {{{bits(1.0f), bits(2.0f)}, 0}, {{0x7fc0'0000, bits(2.0f)}, 1}});
  expect_rows("setp.lt.f64 %D, %A, %B;", {1, 64, 64},
              {{{bits(1.0), bits(2.0)}, 1}, {{bits(2.0), bits(1.0)}, 0}});
  expect_rows("setp.gt.bf16 %D, %A, %B;", {1, 16, 16}, {{{0x4000, 0x3f80}, 1}, {{0x3f80, 0x4000}, 0}});
  expect_rows("setp.gt.ftz.f32 %D, %A, %B;", {1, 32, 32}, {{{bits(1e-40f), 0}, 0}});
  expect_rows("setp.lo.u32 %D, %A, %B;", {1, 32, 32}, {{{1, 0xffff'ffff}, 1}});
  expect_rows("setp.hs.u32 %D, %A, %B;", {1, 32, 32}, {{{1, 0xffff'ffff}, 0}});
  expect_rows("setp.eq.and.s32 %D, %A, %B, %C;", {1, 32, 32, 1},
              {{{1, 1, 1}, 1}, {{1, 1, 0}, 0}, {{1, 2, 1}, 0}});
  expect_rows("setp.eq.xor.s32 %D, %A, %B, !%C;", {1, 32, 32, 1}, {{{1, 1, 1}, 1}, {{1, 1, 0}, 0}});
  // The second result uses the negated comparison.
  expect_rows("setp.lt.or.s32 %p3|%D, %A, %B, %C;", {1, 32, 32, 1},
              {{{1, 2, 0}, 0}, {{2, 1, 0}, 1}, {{1, 2, 1}, 1}});
  expect_rows("set.lt.u32.s32 %D, %A, %B;", {32, 32, 32}, {{{0xffff'ffff, 0}, 0xffff'ffff}, {{0, 0}, 0}});
  expect_rows("set.ge.f32.f32 %D, %A, %B;", {32, 32, 32},
              {{{bits(2.0f), bits(1.0f)}, bits(1.0f)}, {{bits(0.0f), bits(1.0f)}, 0}});
}

TEST(PtxSelection, Select) {
  expect_rows("selp.b32 %D, %A, %B, %C;", {32, 32, 32, 1}, {{{7, 9, 1}, 7}, {{7, 9, 0}, 9}});
  expect_rows("selp.f64 %D, %A, %B, !%C;", {64, 64, 64, 1}, {{{7, 9, 1}, 9}, {{7, 9, 0}, 7}});
  expect_rows("selp.b16 %D, %A, %B, %C;", {16, 16, 16, 1}, {{{7, 9, 1}, 7}});
  expect_rows("slct.u32.s32 %D, %A, %B, %C;", {32, 32, 32, 32}, {{{7, 9, 0}, 7}, {{7, 9, 0x8000'0000}, 9}});
  expect_rows("slct.b64.f32 %D, %A, %B, %C;", {64, 64, 64, 32},
              {{{7, 9, bits(-0.0f)}, 7}, {{7, 9, bits(-1.0f)}, 9}, {{7, 9, 0x7fc0'0000}, 9}});
}

TEST(PtxMove, Vectors) {
  expect_rows("mov.b64 %D, {%A, %B};", {64, 32, 32}, {{{0x1111'1111, 0x2222'2222}, 0x2222'2222'1111'1111}});
  expect_rows("mov.b32 %D, {%A, %B};", {32, 16, 16}, {{{0x1111, 0x2222}, 0x2222'1111}});
  expect_rows("mov.b32 {%h1, %D}, %A;", {16, 32}, {{{0x2222'1111}, 0x2222}});
  expect_rows("mov.b64 {%r20, %D}, %A;", {32, 64}, {{{0x2222'2222'1111'1111}, 0x2222'2222}});
  expect_rows("mov.b64 {_, %h1, %h2, %D}, %A;", {16, 64}, {{{0x4444'3333'2222'1111}, 0x4444}});
  expect_rows("mov.b64 {%r20, %r21}, %A; mov.b64 %D, {%r21, %r20};", {64, 64},
              {{{0x2222'2222'1111'1111}, 0x1111'1111'2222'2222}});
  expect_rows("mov.pred %D, !%A;", {1, 1}, {{{1}, 0}, {{0}, 1}});
  expect_rows("mov.pred %D, -1;", {1, 1}, {{{0}, 1}});
  expect_rows("mov.pred %D, 0;", {1, 1}, {{{0}, 0}});
  expect_rows("mov.f32 %D, 0f3F800000;", {32, 32}, {{{0}, bits(1.0f)}});
  expect_rows("mov.f64 %D, 0dC000000000000000;", {64, 64}, {{{0}, bits(-2.0)}});
  expect_rows("mov.b32 %D, -2;", {32, 32}, {{{0}, 0xffff'fffe}});
  expect_rows("mov.b64 %D, %A;", {64, 64}, {{{0x1234'5678'9abc'def0}, 0x1234'5678'9abc'def0}});
  // The clock advances.
  expect_rows("mov.u64 %x5, %clock64; mov.u64 %x6, %clock64; sub.u64 %x5, %x6, %x5; setp.ge.s64 %D, %x5, 0;",
              {1, 32}, {{{0}, 1}});
}

}  // namespace
}  // namespace strata::gpu_tests
