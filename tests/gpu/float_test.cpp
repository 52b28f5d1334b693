// Floating-point arithmetic: special values, NaN, denormals, rounding.
#include <gtest/gtest.h>

#include <fmt/core.h>

#include <algorithm>
#include <cfenv>
#include <cmath>
#include <limits>

#include "reference.h"
#include "snippet.h"

namespace strata::gpu_tests {
namespace {

constexpr uint64_t kNan = 0x7fff'ffff;

uint64_t result(float value) {
  return std::isnan(value) ? kNan : bits(value);
}
float flush(float value) {
  return std::fpclassify(value) == FP_SUBNORMAL ? std::copysign(0.0f, value) : value;
}

template <typename F>
float rounded(int mode, F function) {
  std::fesetround(mode);
  volatile float value = function();
  std::fesetround(FE_TONEAREST);
  return value;
}

TEST(PtxFloat, F32Arithmetic) {
  const std::vector<unsigned> widths = {32, 32, 32};
  const auto all = std::vector<std::vector<uint64_t>>{floats(), floats()};
  expect_function("add.f32 %D, %A, %B;", widths, all,
                  [](const auto& o) { return result(as_float(o[0]) + as_float(o[1])); });
  expect_function("sub.rn.f32 %D, %A, %B;", widths, all,
                  [](const auto& o) { return result(as_float(o[0]) - as_float(o[1])); });
  expect_function("mul.f32 %D, %A, %B;", widths, all,
                  [](const auto& o) { return result(as_float(o[0]) * as_float(o[1])); });
  expect_function("div.rn.f32 %D, %A, %B;", widths, all,
                  [](const auto& o) { return result(as_float(o[0]) / as_float(o[1])); });
  expect_function("add.ftz.f32 %D, %A, %B;", widths, all,
                  [](const auto& o) { return result(flush(flush(as_float(o[0])) + flush(as_float(o[1])))); });
  expect_function("mul.ftz.f32 %D, %A, %B;", widths, all,
                  [](const auto& o) { return result(flush(flush(as_float(o[0])) * flush(as_float(o[1])))); });
  expect_function("mul.sat.f32 %D, %A, %B;", widths, all, [](const auto& o) {
    const float value = as_float(o[0]) * as_float(o[1]);
    return bits(std::isnan(value) || value <= 0 ? 0.0f : std::min(value, 1.0f));
  });
  expect_function(
      "fma.rn.f32 %D, %A, %B, %C;", {32, 32, 32, 32},
      {floats(), floats(), {bits(1.0f), bits(-0.01f), bits(3e38f), bits(1e-45f)}},
      [](const auto& o) { return result(std::fma(as_float(o[0]), as_float(o[1]), as_float(o[2]))); });
  // Rounding the multiplication separately would change a bit.
  expect_rows("fma.rn.f32 %D, %A, %B, %C;", {32, 32, 32, 32},
              {{{0x3f80'0001, 0x3f80'0001, 0xbf80'0002}, bits(0x1p-46f)}});
}

TEST(PtxFloat, F32Rounding) {
  const std::vector<unsigned> widths = {32, 32, 32};
  for (const auto& [name, mode] :
       {std::pair<const char*, int>{"rz", FE_TOWARDZERO}, {"rm", FE_DOWNWARD}, {"rp", FE_UPWARD}}) {
    const int rounding = mode;
    expect_function(fmt::format("add.{}.f32 %D, %A, %B;", name), widths, {floats(), floats()},
                    [&](const auto& o) {
                      volatile float a = as_float(o[0]), b = as_float(o[1]);
                      return result(rounded(rounding, [&] { return a + b; }));
                    });
    expect_function(fmt::format("fma.{}.f32 %D, %A, %B, %C;", name), {32, 32, 32, 32},
                    {floats(), {bits(0.1f), bits(-3.0f)}, {bits(0.3f), bits(1e30f)}}, [&](const auto& o) {
                      volatile float a = as_float(o[0]), b = as_float(o[1]), c = as_float(o[2]);
                      return result(rounded(rounding, [&] { return std::fma(a, b, c); }));
                    });
  }
  expect_rows(
      "add.rz.f32 %D, %A, %B;", widths,
      {{{bits(1.0f), bits(0x1.8p-24f)}, bits(1.0f)}, {{bits(-1.0f), bits(-0x1.8p-24f)}, bits(-1.0f)}});
  expect_rows("add.rp.f32 %D, %A, %B;", widths,
              {{{bits(1.0f), bits(1e-30f)}, 0x3f80'0001}, {{bits(-1.0f), bits(-1e-30f)}, bits(-1.0f)}});
  expect_rows("mul.rm.f32 %D, %A, %B;", widths,
              {{{bits(-1.0f), bits(0x1.000002p0f)}, 0xbf80'0001}, {{0x3f80'0001, 0xbf80'0001}, 0xbf80'0003}});
  expect_rows("div.rz.f32 %D, %A, %B;", widths,
              {{{bits(1.0f), bits(3.0f)}, 0x3eaa'aaaa}, {{bits(2.0f), bits(3.0f)}, 0x3f2a'aaaa}});
}

TEST(PtxFloat, F64) {
  const std::vector<unsigned> widths = {64, 64, 64};
  const auto same = [](double value) { return std::isnan(value) ? 0 : bits(value); };
  const auto numbers =
      std::vector<std::vector<uint64_t>>{doubles(), {bits(1.0), bits(-0.1), bits(1e-300), bits(1e300)}};
  expect_function("add.f64 %D, %A, %B;", widths, numbers,
                  [&](const auto& o) { return same(as_double(o[0]) + as_double(o[1])); });
  expect_function("sub.f64 %D, %A, %B;", widths, numbers,
                  [&](const auto& o) { return same(as_double(o[0]) - as_double(o[1])); });
  expect_function("mul.rn.f64 %D, %A, %B;", widths, numbers,
                  [&](const auto& o) { return same(as_double(o[0]) * as_double(o[1])); });
  expect_function("div.rn.f64 %D, %A, %B;", widths, numbers,
                  [&](const auto& o) { return same(as_double(o[0]) / as_double(o[1])); });
  expect_function("fma.rn.f64 %D, %A, %B, %C;", {64, 64, 64, 64},
                  {doubles(), {bits(0.1), bits(3.0)}, {bits(-0.5), bits(1e10)}}, [&](const auto& o) {
                    return same(std::fma(as_double(o[0]), as_double(o[1]), as_double(o[2])));
                  });
  expect_rows("add.rp.f64 %D, %A, %B;", widths, {{{bits(1.0), bits(1e-300)}, bits(1.0) + 1}});
  expect_rows("min.f64 %D, %A, %B;", widths,
              {{{bits(1.0), bits(-0.0)}, bits(-0.0)}, {{0x7ff8'0000'0000'0000, bits(2.0)}, bits(2.0)}});
  expect_rows("max.f64 %D, %A, %B;", widths, {{{bits(0.0), bits(-0.0)}, bits(0.0)}});
  expect_rows("sqrt.rn.f64 %D, %A;", {64, 64}, {{{bits(2.0)}, bits(1.4142135623730951)}});
  expect_rows("rcp.rn.f64 %D, %A;", {64, 64}, {{{bits(3.0)}, bits(1.0 / 3)}});
  expect_rows("neg.f64 %D, %A;", {64, 64}, {{{bits(0.0)}, bits(-0.0)}});
  expect_rows("abs.f64 %D, %A;", {64, 64}, {{{bits(-3.5)}, bits(3.5)}});
}

TEST(PtxFloat, MinMax) {
  const auto reference = [](bool maximum, bool nan_wins) {
    return [=](const std::vector<uint64_t>& o) -> uint64_t {
      const float a = as_float(o[0]), b = as_float(o[1]);
      if (std::isnan(a) && std::isnan(b)) return kNan;
      if (std::isnan(a) || std::isnan(b)) return nan_wins ? kNan : std::isnan(a) ? o[1] : o[0];
      if (a == 0 && b == 0) {  // +0 is greater than -0
        const bool both = std::signbit(a) && std::signbit(b), one = std::signbit(a) || std::signbit(b);
        return bits((maximum ? both : one) ? -0.0f : 0.0f);
      }
      return bits(maximum ? std::fmax(a, b) : std::fmin(a, b));
    };
  };
  const std::vector<unsigned> widths = {32, 32, 32};
  expect_function("max.f32 %D, %A, %B;", widths, {floats(), floats()}, reference(true, false));
  expect_function("min.f32 %D, %A, %B;", widths, {floats(), floats()}, reference(false, false));
  expect_function("max.NaN.f32 %D, %A, %B;", widths, {floats(), floats()}, reference(true, true));
  expect_function("min.NaN.f32 %D, %A, %B;", widths, {floats(), floats()}, reference(false, true));
  expect_rows("max.ftz.f32 %D, %A, %B;", widths, {{{bits(1e-40f), bits(-1.0f)}, bits(0.0f)}});
  expect_rows("max.xorsign.abs.f32 %D, %A, %B;", widths,
              {{{bits(-3.0f), bits(2.0f)}, bits(-3.0f)}, {{bits(-3.0f), bits(-4.0f)}, bits(4.0f)}});
  expect_rows("max.f32 %D, %A, %B, %C;", {32, 32, 32, 32},
              {{{bits(1.0f), bits(7.0f), bits(3.0f)}, bits(7.0f)},
               {{0x7fc0'0000, 0x7fc0'0000, bits(3.0f)}, bits(3.0f)}});
}

// Results below the least normal number are flushed, even some that would round up to it.
TEST(PtxFloat, FlushOfTinyResults) {
  const uint64_t least = 0x0080'0000, below_one = 0x3f7f'ffff;
  expect_rows("mul.rn.ftz.f32 %D, %A, %B;", {32, 32, 32},
              {{{below_one, least}, 0}, {{0x3f80'0000, least}, least}});
  expect_rows("mul.rn.f32 %D, %A, %B;", {32, 32, 32}, {{{below_one, least}, least}});
  expect_rows("fma.rm.ftz.f32 %D, %A, %B, %C;", {32, 32, 32, 32}, {{{0xbf7f'ffff, least, 0}, 0x8000'0000}});
  expect_rows("mul.ftz.f16 %D, %A, %B;", {16, 16, 16}, {{{0x3bff, 0x0400}, 0}, {{0x3c00, 0x0400}, 0x0400}});
}

TEST(PtxFloat, Signs) {
  const auto canonical = [](uint64_t value) { return std::isnan(as_float(value)) ? 0x7fff'ffff : value; };
  expect_function("neg.f32 %D, %A;", {32, 32}, {floats()},
                  [&](const auto& o) { return canonical(o[0] ^ 0x8000'0000); });
  expect_function("abs.f32 %D, %A;", {32, 32}, {floats()},
                  [&](const auto& o) { return canonical(o[0] & 0x7fff'ffff); });
  expect_rows("neg.ftz.f16x2 %D, %A;", {32, 32}, {{{0x0001'bc00}, 0x8000'3c00}});
  expect_rows("max.xorsign.abs.bf16 %D, %A, %B;", {16, 16, 16},
              {{{0xbf80, 0x4000}, 0xc000}, {{0xbf80, 0xbf00}, 0x3f80}, {{0xbf80, 0xffc0}, 0x3f80}});
  expect_rows("neg.ftz.f32 %D, %A;", {32, 32}, {{{bits(1e-40f)}, bits(-0.0f)}});
  expect_rows("neg.bf16x2 %D, %A;", {32, 32}, {{{0x3f80'bf80}, 0xbf80'3f80}, {{0x7f81'0000}, 0x7fff'8000}});
  expect_rows("abs.f16 %D, %A;", {16, 16}, {{{0xbc00}, 0x3c00}, {{0xfc01}, 0x7fff}});
  expect_rows("copysign.f32 %D, %A, %B;", {32, 32, 32},
              {{{bits(-2.0f), bits(5.0f)}, bits(-5.0f)}, {{bits(2.0f), bits(-5.0f)}, bits(5.0f)}});
  expect_rows("testp.subnormal.f32 %D, %A;", {1, 32}, {{{bits(1e-40f)}, 1}, {{bits(1.0f)}, 0}});
  expect_rows("testp.notanumber.f32 %D, %A;", {1, 32}, {{{0x7fc0'0000}, 1}, {{bits(1.0f)}, 0}});
  expect_rows("testp.infinite.f64 %D, %A;", {1, 64}, {{{bits(-1.0 / 0.0)}, 1}, {{bits(1.0)}, 0}});
  expect_rows("testp.normal.f32 %D, %A;", {1, 32},
              {{{bits(-0.0f)}, 1}, {{bits(1e-40f)}, 0}, {{bits(1.0f)}, 1}});
}

// Values of a small format near its edges.
std::vector<uint64_t> small_floats(SmallFormat format) {
  const uint32_t one = ((1u << (format.exponent - 1)) - 1) << format.mantissa;
  const uint32_t infinity = ((1u << format.exponent) - 1) << format.mantissa;
  std::vector<uint64_t> values;
  for (const uint32_t magnitude : {0u, 1u, 3u, (1u << format.mantissa) - 1, 1u << format.mantissa, one,
                                   one + 1, one + 0x55, infinity - 1, infinity, infinity + 1}) {
    values.push_back(magnitude);
    values.push_back(magnitude | 0x8000);
  }
  return values;
}

TEST(PtxFloat, SmallFormats) {
  for (const auto& [name, format] :
       {std::pair<std::string, SmallFormat>{"f16", kF16Format}, {"bf16", kBf16Format}}) {
    const SmallFormat f = format;
    const auto value = [&](uint64_t operand) { return small_value(static_cast<uint32_t>(operand), f); };
    const auto all = std::vector<std::vector<uint64_t>>{small_floats(f), small_floats(f)};
    expect_function("add." + name + " %D, %A, %B;", {16, 16, 16}, all,
                    [&](const auto& o) { return small_bits(value(o[0]) + value(o[1]), f, 'n'); });
    expect_function("sub.rn." + name + " %D, %A, %B;", {16, 16, 16}, all,
                    [&](const auto& o) { return small_bits(value(o[0]) - value(o[1]), f, 'n'); });
    expect_function("mul." + name + " %D, %A, %B;", {16, 16, 16}, all,
                    [&](const auto& o) { return small_bits(value(o[0]) * value(o[1]), f, 'n'); });
    expect_function("max." + name + " %D, %A, %B;", {16, 16, 16},
                    {{0x0000, 0x8000, 1}, {0x0000, 0x8000, 0x8001}}, [&](const auto& o) {
                      return small_bits(value(o[0]) == value(o[1]) ? (o[0] & o[1] ? -0.0 : 0.0)
                                                                   : std::fmax(value(o[0]), value(o[1])),
                                        f, 'n');
                    });
  }
  // 1 + 2^-10 squared plus a value that breaks the tie: the result must be rounded once.
  const uint64_t tie = small_bits(1 + 0x1p-10, kF16Format, 'n');
  expect_function("fma.rn.f16 %D, %A, %B, %C;", {16, 16, 16, 16}, {{tie}, {tie}, {0x0001, 0x8001, 0x0000}},
                  [&](const auto& o) -> uint64_t {
                    // (1 + 2^-10)² = 1 + 2^-9 + 2^-20 is not representable: rounds to 1 + 2^-9 for every
                    // addend.
                    return small_bits(1 + 0x1p-9, kF16Format, 'n') + 0 * o[2];
                  });
  // 0x1.802p0 · 0x1.ffcp-13 is just off the midpoint of two values; c decides.
  expect_function("fma.rn.bf16 %D, %A, %B, %C;", {16, 16, 16, 16},
                  {{0x3f81, 0x3f80, 0x4049}, {0x3f81, 0x3b80, 0xbf03}, {0x0001, 0x8001, 0x3f80, 0xc000}},
                  [&](const auto& o) {
                    const long double exact =
                        static_cast<long double>(small_value(static_cast<uint32_t>(o[0]), kBf16Format)) *
                        small_value(static_cast<uint32_t>(o[1]), kBf16Format);
                    const double c = small_value(static_cast<uint32_t>(o[2]), kBf16Format);
                    // The tiny c only breaks ties: moves the value towards it.
                    const double product = static_cast<double>(exact);
                    const double sum =
                        std::fabs(c) < 1e-30 ? std::nextafter(product, c > 0 ? 1e30 : -1e30) : product + c;
                    return small_bits(sum, kBf16Format, 'n');
                  });
  expect_rows("fma.rn.bf16x2 %D, %A, %B, %C;", {32, 32, 32, 32},
              {{{0x4000'3f80, 0x4040'c000, 0x3f80'3f80}, 0x40e0'bf80}});
  expect_rows("fma.rn.relu.bf16 %D, %A, %B, %C;", {16, 16, 16, 16},
              {{{0x3f80, 0xc000, 0x3f80}, 0}, {{0x3f80, 0x4000, 0x3f80}, 0x4040}});
  expect_rows("add.f16x2 %D, %A, %B;", {32, 32, 32}, {{{0x3c00'4000, 0x3c00'3c00}, 0x4000'4200}});
  expect_rows("mul.bf16x2 %D, %A, %B;", {32, 32, 32}, {{{0x4000'4040, 0x4040'3f00}, 0x40c0'3fc0}});
  expect_rows("max.bf16x2 %D, %A, %B;", {32, 32, 32}, {{{0x7fc0'4040, 0x4040'bf00}, 0x4040'4040}});
  expect_rows("min.NaN.bf16x2 %D, %A, %B;", {32, 32, 32}, {{{0x7fc0'4040, 0x4040'bf00}, 0x7fff'bf00}});
  expect_rows(
      "add.rn.f32x2 %D, %A, %B;", {64, 64, 64},
      {{{bits(1.0f) << 32 | bits(2.0f), bits(3.0f) << 32 | bits(-5.0f)}, bits(4.0f) << 32 | bits(-3.0f)}});
  expect_rows(
      "fma.rn.f32x2 %D, %A, %B, %C;", {64, 64, 64, 64},
      {{{bits(2.0f) << 32 | bits(2.0f), bits(3.0f) << 32 | bits(4.0f), bits(1.0f) << 32 | bits(-1.0f)},
        bits(7.0f) << 32 | bits(7.0f)}});
}

// The executor rounds the exact value; a GPU may differ by a relative `tolerance`, or by `tolerance` near
// zero.
void expect_approximation(const std::string& instruction, double (*function)(double),
                          const std::vector<float>& values, bool ftz, double tolerance) {
  std::vector<uint64_t> operands;
  for (const float x : values) operands.push_back(bits(x));
  const std::vector<uint64_t> results = evaluate(*make_device(), instruction, {32, 32}, operands);
  for (size_t n = 0; n < values.size(); ++n) {
    const float in = ftz ? flush(values[n]) : values[n];
    float value = static_cast<float>(function(in));
    if (ftz) value = flush(value);
    if (tests_run_on_hardware() && std::isfinite(value)) {
      EXPECT_NEAR(as_float(results[n]), value, tolerance * std::max(1.0f, std::fabs(value)))
          << instruction << " of " << values[n];
    } else {
      EXPECT_EQ(results[n], result(value)) << instruction << " of " << values[n];
    }
  }
}

TEST(PtxFloat, SpecialFunctions) {
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<float> any = {0.0f,   -0.0f,   1.0f,   -1.0f, 0.5f, 3.7f, -20.25f,
                                  130.0f, -140.0f, 1e-40f, inf,   -inf, NAN};
  const std::vector<float> positive = {0.0f, -0.0f, 1.0f, 2.0f, 0.1f, 1e30f, 1e-40f, inf, -1.0f, NAN};
  // Bounds from the PTX ISA; those of sin and cos for arguments outside [-pi, pi] are measured.
  const double two_ulp = 0x1p-22, sine = 0x1p-14, hyperbolic = 0x1p-10;
  expect_approximation(
      "ex2.approx.f32 %D, %A;", [](double x) { return std::exp2(x); }, any, false, two_ulp);
  expect_approximation(
      "ex2.approx.ftz.f32 %D, %A;", [](double x) { return std::exp2(x); }, any, true, two_ulp);
  expect_approximation(
      "lg2.approx.f32 %D, %A;", [](double x) { return std::log2(x); }, positive, false, two_ulp);
  expect_approximation(
      "sin.approx.f32 %D, %A;", [](double x) { return std::sin(x); }, any, false, sine);
  expect_approximation(
      "cos.approx.f32 %D, %A;", [](double x) { return std::cos(x); }, any, false, sine);
  expect_approximation(
      "tanh.approx.f32 %D, %A;", [](double x) { return std::tanh(x); }, any, false, hyperbolic);
  expect_approximation(
      "rsqrt.approx.f32 %D, %A;", [](double x) { return 1 / std::sqrt(x); }, positive, false, two_ulp);
  expect_approximation(
      "rcp.approx.ftz.f32 %D, %A;", [](double x) { return 1 / x; }, any, true, two_ulp);
  expect_approximation(
      "sqrt.approx.f32 %D, %A;", [](double x) { return std::sqrt(x); }, positive, false, two_ulp);
  expect_approximation(
      "sqrt.rn.f32 %D, %A;", [](double x) { return std::sqrt(x); }, positive, false, 0);
  expect_approximation(
      "rcp.rn.f32 %D, %A;", [](double x) { return 1 / x; }, any, false, 0);
  expect_rows("sqrt.rz.f32 %D, %A;", {32, 32}, {{{bits(3.0f)}, 0x3fdd'b3d7}, {{bits(2.0f)}, 0x3fb5'04f3}});
  expect_rows("rcp.rp.f32 %D, %A;", {32, 32}, {{{bits(3.0f)}, 0x3eaa'aaab}});
  expect_rows("div.approx.f32 %D, %A, %B;", {32, 32, 32}, {{{bits(1.0f), bits(3.0f)}, bits(1.0f / 3)}});
  expect_rows("div.full.ftz.f32 %D, %A, %B;", {32, 32, 32}, {{{bits(1e-40f), bits(3.0f)}, 0}});
  expect_rows("ex2.approx.ftz.bf16x2 %D, %A;", {32, 32}, {{{0x3f80'4040}, 0x4000'4100}});
  expect_rows("tanh.approx.f16 %D, %A;", {16, 16}, {{{0x0000}, 0x0000}, {{0x7c00}, 0x3c00}});
  expect_rows("rcp.approx.ftz.f64 %D, %A;", {64, 64}, {{{bits(3.0)}, 0x3fd5'5555'0000'0000}});
  expect_rows("rsqrt.approx.f64 %D, %A;", {64, 64}, {{{bits(4.0)}, bits(0.5)}});
}

}  // namespace
}  // namespace strata::gpu_tests
