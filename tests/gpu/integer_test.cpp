// Integer arithmetic and bits: each instruction against its definition in the PTX ISA, in wider arithmetic.
#include <gtest/gtest.h>

#include <fmt/core.h>

#include <algorithm>

#include "snippet.h"

namespace strata::gpu_tests {
namespace {

using Wide = __int128;

Wide value_of(uint64_t operand, unsigned width, bool is_signed) {
  if (!is_signed) return operand;
  return static_cast<int64_t>(operand << (64 - width)) >> (64 - width);
}
uint64_t low(Wide value, unsigned width) {
  const auto all = static_cast<uint64_t>(value);
  return width == 64 ? all : all & ((uint64_t{1} << width) - 1);
}

struct Kind {
  unsigned width;
  bool is_signed;
  std::string name;
};
const std::vector<Kind>& kinds() {
  static const std::vector<Kind> kAll = {{16, false, "u16"}, {16, true, "s16"},  {32, false, "u32"},
                                         {32, true, "s32"},  {64, false, "u64"}, {64, true, "s64"}};
  return kAll;
}

template <typename F>
void two(const std::string& opcode, const Kind& kind, F function) {
  expect_function(fmt::format("{}.{} %D, %A, %B;", opcode, kind.name), {kind.width, kind.width, kind.width},
                  {integers(kind.width), integers(kind.width)}, [&](const std::vector<uint64_t>& o) {
                    return low(function(value_of(o[0], kind.width, kind.is_signed),
                                        value_of(o[1], kind.width, kind.is_signed)),
                               kind.width);
                  });
}

TEST(PtxInteger, AddSubMulMinMax) {
  for (const Kind& kind : kinds()) {
    two("add", kind, [](Wide a, Wide b) { return a + b; });
    two("sub", kind, [](Wide a, Wide b) { return a - b; });
    two("mul.lo", kind, [](Wide a, Wide b) {
      const uint64_t product = static_cast<uint64_t>(a) * static_cast<uint64_t>(b);
      return static_cast<Wide>(product);
    });
    two("min", kind, [](Wide a, Wide b) { return std::min(a, b); });
    two("max", kind, [](Wide a, Wide b) { return std::max(a, b); });
    two("mul.hi", kind, [&](Wide a, Wide b) {
      if (kind.is_signed || kind.width < 64) return (a * b) >> kind.width;
      return static_cast<Wide>((static_cast<unsigned __int128>(a) * static_cast<unsigned __int128>(b)) >> 64);
    });
  }
  expect_rows("add.sat.s32 %D, %A, %B;", {32, 32, 32},
              {{{0x7fff'ffff, 1}, 0x7fff'ffff}, {{0x8000'0000, 0xffff'ffff}, 0x8000'0000}, {{5, 6}, 11}});
  expect_rows("sub.sat.s32 %D, %A, %B;", {32, 32, 32},
              {{{0x7fff'ffff, 0xffff'ffff}, 0x7fff'ffff}, {{0x8000'0000, 1}, 0x8000'0000}});
}

TEST(PtxInteger, DivRem) {
  for (const Kind& kind : kinds()) {
    std::vector<uint64_t> divisors = integers(kind.width);
    std::erase(divisors, 0u);
    const auto widths = std::vector<unsigned>{kind.width, kind.width, kind.width};
    const auto number = [&](uint64_t operand) { return value_of(operand, kind.width, kind.is_signed); };
    expect_function(fmt::format("div.{} %D, %A, %B;", kind.name), widths, {integers(kind.width), divisors},
                    [&](const auto& o) { return low(number(o[0]) / number(o[1]), kind.width); });
    expect_function(fmt::format("rem.{} %D, %A, %B;", kind.name), widths, {integers(kind.width), divisors},
                    [&](const auto& o) { return low(number(o[0]) % number(o[1]), kind.width); });
  }
}

TEST(PtxInteger, WideAndMad) {
  for (const Kind& kind : kinds()) {
    const auto number = [&](uint64_t operand) { return value_of(operand, kind.width, kind.is_signed); };
    const unsigned w = kind.width;
    const std::vector<uint64_t> few = {
        0, 1, 3, low(-1, w), low(Wide{1} << (w - 1), w), low((Wide{1} << (w - 1)) - 1, w)};
    expect_function(fmt::format("mad.lo.{} %D, %A, %B, %C;", kind.name), {w, w, w, w}, {few, few, few},
                    [&](const auto& o) {
                      const uint64_t sum = o[0] * o[1] + o[2];
                      return low(static_cast<Wide>(sum), w);
                    });
    if (w == 64) continue;
    expect_function(
        fmt::format("mad.hi.{} %D, %A, %B, %C;", kind.name), {w, w, w, w}, {few, few, few},
        [&](const auto& o) { return low(((number(o[0]) * number(o[1])) >> w) + number(o[2]), w); });
    expect_function(fmt::format("mul.wide.{} %D, %A, %B;", kind.name), {2 * w, w, w},
                    {integers(w), integers(w)},
                    [&](const auto& o) { return low(number(o[0]) * number(o[1]), 2 * w); });
    expect_function(fmt::format("mad.wide.{} %D, %A, %B, %C;", kind.name), {2 * w, w, w, 2 * w},
                    {few, few, {0, 1, low(-1, 2 * w)}}, [&](const auto& o) {
                      return low(number(o[0]) * number(o[1]) + value_of(o[2], 2 * w, kind.is_signed), 2 * w);
                    });
  }
  expect_rows("mad.hi.sat.s32 %D, %A, %B, %C;", {32, 32, 32, 32},
              {{{0x7fff'ffff, 0x7fff'ffff, 0x7fff'ffff}, 0x7fff'ffff}, {{2, 3, 9}, 9}});
  expect_rows("mul24.lo.u32 %D, %A, %B;", {32, 32, 32},
              {{{0xff00'0003, 5}, 15}, {{0xff'ffff, 0xff'ffff}, 0xfe00'0001}});
  expect_rows("mul24.hi.s32 %D, %A, %B;", {32, 32, 32},
              {{{0x7f'ffff, 0x7f'ffff}, 0x3fff'ff00}, {{0xff'ffff, 0x10000}, 0xffff'ffff}});
  expect_rows("mad24.lo.s32 %D, %A, %B, %C;", {32, 32, 32, 32}, {{{0xff'ffff, 7, 10}, 3}});
  expect_rows("sad.s32 %D, %A, %B, %C;", {32, 32, 32, 32}, {{{5, 0xffff'fffe, 100}, 107}, {{3, 9, 1}, 7}});
  expect_rows("dp4a.s32.s32 %D, %A, %B, %C;", {32, 32, 32, 32}, {{{0xff02'0304, 0x0201'0101, 10}, 17}});
  expect_rows("dp4a.u32.s32 %D, %A, %B, %C;", {32, 32, 32, 32},
              {{{0xff00'0001, 0xff00'0001, 0}, static_cast<uint32_t>(-254)}});
}

TEST(PtxInteger, Carry) {
  expect_rows("add.cc.u32 %D, %A, %B; addc.u32 %D, %C, 0;", {32, 32, 32, 32},
              {{{0xffff'ffff, 1, 7}, 8}, {{1, 1, 7}, 7}});
  expect_rows("add.cc.u64 %D, %A, %B; addc.cc.u64 %D, %C, %C; addc.u64 %D, 0, 0;", {64, 64, 64, 64},
              {{{~uint64_t{0}, 1, uint64_t{1} << 63}, 1}, {{1, 1, 1}, 0}});
  expect_rows("sub.cc.u32 %D, %A, %B; subc.u32 %D, %C, 0;", {32, 32, 32, 32},
              {{{0, 1, 7}, 6}, {{1, 1, 7}, 7}});
}

TEST(PtxInteger, MadWithCarry) {
  // a · b + c in 128 bits, in halves: the low word sets the carry, the high one adds it.
  for (const char* type : {"u64", "s64"}) {
    const bool is_signed = type[0] == 's';
    const std::string text =
        fmt::format("mad.lo.cc.{} %x5, %A, %B, %C; madc.hi.{} %D, %A, %B, 0;", type, type);
    expect_function(
        text, {64, 64, 64, 64}, {integers(64), integers(64), {0, 1, ~uint64_t{0}}}, [&](const auto& o) {
          const auto product =
              is_signed ? static_cast<unsigned __int128>(value_of(o[0], 64, true) * value_of(o[1], 64, true))
                        : static_cast<unsigned __int128>(o[0]) * o[1];
          return static_cast<uint64_t>((product + o[2]) >> 64);
        });
  }
  expect_rows("mad.hi.cc.u32 %r5, %A, %B, %C; madc.lo.cc.u32 %r6, 0, 0, -1; addc.u32 %D, 0, 0;",
              {32, 32, 32, 32}, {{{0x8000'0000, 2, 0xffff'ffff}, 1}, {{0x8000'0000, 2, 0xffff'fffe}, 0}});
}

TEST(PtxInteger, Sign) {
  for (const unsigned w : {16u, 32u, 64u}) {
    expect_function(fmt::format("neg.s{} %D, %A;", w), {w, w}, {integers(w)},
                    [&](const auto& o) { return low(-value_of(o[0], w, true), w); });
    expect_function(fmt::format("abs.s{} %D, %A;", w), {w, w}, {integers(w)}, [&](const auto& o) {
      const Wide value = value_of(o[0], w, true);
      return low(value < 0 ? -value : value, w);
    });
  }
}

TEST(PtxBits, Logic) {
  for (const unsigned w : {16u, 32u, 64u}) {
    const std::vector<unsigned> widths = {w, w, w};
    expect_function(fmt::format("and.b{} %D, %A, %B;", w), widths, {integers(w), integers(w)},
                    [&](const auto& o) { return o[0] & o[1]; });
    expect_function(fmt::format("or.b{} %D, %A, %B;", w), widths, {integers(w), integers(w)},
                    [&](const auto& o) { return o[0] | o[1]; });
    expect_function(fmt::format("xor.b{} %D, %A, %B;", w), widths, {integers(w), integers(w)},
                    [&](const auto& o) { return o[0] ^ o[1]; });
    expect_function(fmt::format("not.b{} %D, %A;", w), {w, w}, {integers(w)},
                    [&](const auto& o) { return low(~static_cast<Wide>(o[0]), w); });
    expect_function(fmt::format("cnot.b{} %D, %A;", w), {w, w}, {integers(w)},
                    [&](const auto& o) { return o[0] == 0 ? 1u : 0u; });
  }
  for (const uint64_t a : {0u, 1u}) {
    for (const uint64_t b : {0u, 1u}) {
      expect_rows("and.pred %D, %A, %B;", {1, 1, 1}, {{{a, b}, a & b}});
      expect_rows("or.pred %D, %A, !%B;", {1, 1, 1}, {{{a, b}, a | (b ^ 1)}});
      expect_rows("xor.pred %D, %A, %B;", {1, 1, 1}, {{{a, b}, a ^ b}});
      expect_rows("not.pred %D, %A;", {1, 1}, {{{a}, a ^ 1}});
    }
  }
  for (unsigned table = 0; table < 256; table += 23) {
    expect_function(fmt::format("lop3.b32 %D, %A, %B, %C, {};", table), {32, 32, 32, 32},
                    {integers(32), {0xf0f0'f0f0, 0x1234'5678}, {0xaaaa'aaaa, 0}}, [&](const auto& o) {
                      uint64_t out = 0;
                      for (unsigned bit = 0; bit < 32; ++bit) {
                        const uint64_t k =
                            (o[0] >> bit & 1) << 2 | (o[1] >> bit & 1) << 1 | (o[2] >> bit & 1);
                        out |= (uint64_t{table} >> k & 1) << bit;
                      }
                      return out;
                    });
  }
}

TEST(PtxBits, Shifts) {
  const std::vector<uint64_t> by = {0, 1, 5, 15, 16, 31, 32, 33, 63, 64, 65, 0xffff'ffff};
  for (const unsigned w : {16u, 32u, 64u}) {
    expect_function(fmt::format("shl.b{} %D, %A, %B;", w), {w, w, 32}, {integers(w), by},
                    [&](const auto& o) { return o[1] >= w ? 0 : low(static_cast<Wide>(o[0]) << o[1], w); });
    expect_function(fmt::format("shr.u{} %D, %A, %B;", w), {w, w, 32}, {integers(w), by},
                    [&](const auto& o) { return o[1] >= w ? 0 : o[0] >> o[1]; });
    expect_function(fmt::format("shr.b{} %D, %A, %B;", w), {w, w, 32}, {integers(w), by},
                    [&](const auto& o) { return o[1] >= w ? 0 : o[0] >> o[1]; });
    expect_function(fmt::format("shr.s{} %D, %A, %B;", w), {w, w, 32}, {integers(w), by}, [&](const auto& o) {
      return low(value_of(o[0], w, true) >> std::min<uint64_t>(o[1], w - 1), w);
    });
  }
  const std::vector<uint64_t> words = {0x1234'5678, 0x9abc'def0, 0xffff'ffff};
  for (const bool wrap : {false, true}) {
    const char* mode = wrap ? "wrap" : "clamp";
    const auto amount = [&](uint64_t n) { return wrap ? n & 31 : std::min<uint64_t>(n, 32); };
    expect_function(
        fmt::format("shf.l.{}.b32 %D, %A, %B, %C;", mode), {32, 32, 32, 32}, {words, words, by},
        [&](const auto& o) { return (((o[1] << 32 | o[0]) << amount(o[2])) >> 32) & 0xffff'ffff; });
    expect_function(fmt::format("shf.r.{}.b32 %D, %A, %B, %C;", mode), {32, 32, 32, 32}, {words, words, by},
                    [&](const auto& o) { return ((o[1] << 32 | o[0]) >> amount(o[2])) & 0xffff'ffff; });
  }
}

// The pseudo-code of the PTX ISA, bit by bit.
uint64_t extracted(uint64_t a, uint64_t position, uint64_t length, unsigned width, bool is_signed) {
  const uint64_t msb = width - 1;
  position &= 0xff;
  length &= 0xff;
  uint64_t sign = 0;
  if (is_signed && length != 0) sign = a >> std::min(position + length - 1, msb) & 1;
  uint64_t out = 0;
  for (uint64_t bit = 0; bit <= msb; ++bit)
    out |= (bit < length && position + bit <= msb ? a >> (position + bit) & 1 : sign) << bit;
  return out;
}

TEST(PtxBits, Fields) {
  const std::vector<uint64_t> positions = {0, 1, 8, 31, 32, 40, 63, 255};
  for (const Kind& kind : kinds()) {
    if (kind.width == 16) continue;
    const unsigned w = kind.width;
    expect_function(fmt::format("bfe.{} %D, %A, %B, %C;", kind.name), {w, w, 32, 32},
                    {{low(0x9234'5678'9abc'def0, w), low(-1, w), 5}, positions, positions},
                    [&](const auto& o) { return extracted(o[0], o[1], o[2], w, kind.is_signed); });
    expect_function(fmt::format("bfind.{} %D, %A;", kind.name), {32, w}, {integers(w)},
                    [&](const auto& o) -> uint64_t {
                      const bool negative = kind.is_signed && (o[0] >> (w - 1) & 1) != 0;
                      for (unsigned bit = w; bit-- > 0;) {
                        if ((o[0] >> bit & 1) != (negative ? 1u : 0u)) return bit;
                      }
                      return 0xffff'ffff;
                    });
  }
  expect_rows("bfind.shiftamt.u32 %D, %A;", {32, 32}, {{{1}, 31}, {{0x8000'0000}, 0}, {{0}, 0xffff'ffff}});
  for (const unsigned w : {32u, 64u}) {
    expect_function(fmt::format("bfi.b{} %D, %A, %B, %C, %E;", w), {w, w, w, 32, 32},
                    {{low(-1, w), 5}, {0, low(0x1111'1111'1111'1111, w)}, positions, positions},
                    [&](const auto& o) {
                      uint64_t out = o[1];
                      for (uint64_t bit = 0; bit < (o[3] & 0xff) && (o[2] & 0xff) + bit < w; ++bit) {
                        const uint64_t place = (o[2] & 0xff) + bit;
                        out = (out & ~(uint64_t{1} << place)) | (o[0] >> bit & 1) << place;
                      }
                      return out;
                    });
    expect_function(fmt::format("popc.b{} %D, %A;", w), {32, w}, {integers(w)}, [&](const auto& o) {
      uint64_t count = 0;
      for (unsigned bit = 0; bit < w; ++bit) count += o[0] >> bit & 1;
      return count;
    });
    expect_function(fmt::format("clz.b{} %D, %A;", w), {32, w}, {integers(w)}, [&](const auto& o) {
      uint64_t count = 0;
      for (unsigned bit = w; bit-- > 0 && (o[0] >> bit & 1) == 0;) ++count;
      return count;
    });
    expect_function(fmt::format("brev.b{} %D, %A;", w), {w, w}, {integers(w)}, [&](const auto& o) {
      uint64_t out = 0;
      for (unsigned bit = 0; bit < w; ++bit) out |= (o[0] >> bit & 1) << (w - 1 - bit);
      return out;
    });
  }
}

TEST(PtxBits, MasksAndExtension) {
  expect_rows("bmsk.clamp.b32 %D, %A, %B;", {32, 32, 32},
              {{{0, 5}, 0x1f},
               {{4, 8}, 0xff0},
               {{31, 1}, 0x8000'0000},
               {{30, 9}, 0xc000'0000},
               {{32, 3}, 0},
               {{3, 0}, 0},
               {{8, 40}, 0xffff'ff00}});
  expect_rows("bmsk.wrap.b32 %D, %A, %B;", {32, 32, 32},
              {{{33, 2}, 6}, {{4, 40}, 0xff0}, {{30, 9}, 0xc000'0000}});
  expect_rows("szext.clamp.s32 %D, %A, %B;", {32, 32, 32},
              {{{0x80, 8}, 0xffff'ff80}, {{0x7f, 8}, 0x7f}, {{0x1234'5678, 32}, 0x1234'5678}});
  expect_rows("szext.wrap.u32 %D, %A, %B;", {32, 32, 32}, {{{0xffff, 8}, 0xff}, {{0xffff, 36}, 0xf}});
}

TEST(PtxBits, Permute) {
  const uint64_t a = 0x8372'6150, b = 0xb7a6'9584;  // bytes 50 61 72 83 and 84 95 a6 b7
  expect_rows("prmt.b32 %D, %A, %B, %C;", {32, 32, 32, 32},
              {{{a, b, 0x3210}, a},
               {{a, b, 0x7654}, b},
               {{a, b, 0x0426}, 0x5084'72a6},
               {{a, b, 0xb8c9}, 0xff00'ff00}});
  expect_rows("prmt.b32.f4e %D, %A, %B, %C;", {32, 32, 32, 32},
              {{{a, b, 1}, 0x8483'7261}, {{a, b, 3}, 0xa695'8483}});
  expect_rows("prmt.b32.b4e %D, %A, %B, %C;", {32, 32, 32, 32},
              {{{a, b, 0}, 0x95a6'b750}, {{a, b, 2}, 0xb750'6172}});
  expect_rows("prmt.b32.rc8 %D, %A, %B, %C;", {32, 32, 32, 32}, {{{a, b, 2}, 0x7272'7272}});
  expect_rows("prmt.b32.ecl %D, %A, %B, %C;", {32, 32, 32, 32},
              {{{a, b, 0}, 0x8372'6150}, {{a, b, 2}, 0x8372'7272}});
  expect_rows("prmt.b32.ecr %D, %A, %B, %C;", {32, 32, 32, 32},
              {{{a, b, 0}, 0x5050'5050}, {{a, b, 2}, 0x7272'6150}});
  expect_rows("prmt.b32.rc16 %D, %A, %B, %C;", {32, 32, 32, 32},
              {{{a, b, 0}, 0x6150'6150}, {{a, b, 1}, 0x8372'8372}});
}

}  // namespace
}  // namespace strata::gpu_tests
