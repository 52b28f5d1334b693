#include "kernels/cpu/amx.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>
#include <vector>

#include "tensor/dtype.h"

namespace strata::cpu::detail {
namespace {

float flushed(float value) {
  return std::fpclassify(value) == FP_SUBNORMAL ? std::copysign(0.0f, value) : value;
}
float value_of(BF16 value) {
  return flushed(static_cast<float>(value));
}

// sums += a · b as the processor's manual defines it.
void multiply(std::vector<float>& sums, const std::vector<BF16>& a, const std::vector<BF16>& b) {
  for (size_t m = 0; m < 16; ++m) {
    for (size_t n = 0; n < 16; ++n) {
      float of[2] = {};
      for (size_t k = 0; k < 32; ++k) {
        const BF16 x = a[m * 32 + k], y = b[k / 2 * 32 + 2 * n + k % 2];
        of[k % 2] = flushed(std::fma(value_of(x), value_of(y), of[k % 2]));
      }
      sums[m * 16 + n] = flushed(flushed(sums[m * 16 + n]) + flushed(of[0] + of[1]));
    }
  }
}

template <typename Tiles>
void expect_as_in_the_manual() {
  std::mt19937 engine(5);
  std::normal_distribution<float> normal;
  std::vector<BF16> a(512), b(512);
  std::vector<float> sums(256);
  for (int round = 0; round < 50; ++round) {
    for (auto* const values : {&a, &b})
      for (BF16& x : *values) x = BF16(normal(engine));
    for (float& x : sums) x = normal(engine);
    a[3].bits = 0x0012, b[40].bits = 0x807f, sums[7] = 1e-40f;  // denormal: zero
    std::vector<float> wanted = sums, more = sums;
    multiply(wanted, a, b);
    multiply(wanted, b, a);
    {
      Tiles tiles;
      tiles.template load<0>(sums.data(), 64);
      tiles.template load<3>(a.data(), 64);
      tiles.template load<7>(b.data(), 64);
      tiles.template dot<0, 3, 7>();
      tiles.template dot<0, 7, 3>();
      tiles.template store<0>(sums.data(), 64);
      tiles.template zero<0>();
      tiles.template store<0>(more.data(), 64);
    }
    for (size_t i = 0; i < sums.size(); ++i) {
      ASSERT_EQ(std::bit_cast<uint32_t>(sums[i]), std::bit_cast<uint32_t>(wanted[i])) << i;
      ASSERT_EQ(more[i], 0.0f);
    }
  }
}

TEST(Amx, ModelFollowsTheManual) {
  expect_as_in_the_manual<ModelTiles>();
}

TEST(Amx, InstructionsFollowTheManual) {
#if STRATA_HAS_AMX
  if (has_amx_tiles()) return expect_as_in_the_manual<NativeTiles>();
#endif
  GTEST_SKIP() << "This processor has no AMX tiles";
}

}  // namespace
}  // namespace strata::cpu::detail
