#include "base/random.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

namespace strata {
namespace {

TEST(FillNormal, IsBoxMullerOfPhilox) {
  const RandomKey key{0x123456789abcdefull, 42};
  const int64_t first = (int64_t{1} << 34) + 3;
  std::vector<float> out(5000);
  fill_normal(out.data(), static_cast<int64_t>(out.size()), 0.5f, key, first);
  double sum = 0, squares = 0;
  for (size_t i = 0; i < out.size(); ++i) {
    const uint64_t element = static_cast<uint64_t>(first) + i;
    const auto bits = philox(key, element / 4);
    const size_t pair = element % 4 / 2 * 2;
    const double radius = std::sqrt(-2 * std::log(1.0 - uniform_float(bits[pair])));
    const double angle = 2 * std::numbers::pi * uniform_float(bits[pair + 1]);
    const double wanted = 0.5 * radius * (element % 2 == 0 ? std::cos(angle) : std::sin(angle));
    ASSERT_NEAR(out[i], wanted, 2e-6) << i;
    sum += out[i];
    squares += out[i] * out[i];
  }
  EXPECT_NEAR(sum / 5000, 0, 0.03);
  EXPECT_NEAR(squares / 5000, 0.25, 0.02);
}

TEST(FillNormal, AnyPartitionYieldsTheSameNumbers) {
  const RandomKey key{7, 1};
  std::vector<float> whole(1500), parts(1500);
  fill_normal(whole.data(), 1500, 1.0f, key);
  for (int64_t begin = 0, step = 1; begin < 1500; begin += step++)
    fill_normal(parts.data() + begin, std::min(step, 1500 - begin), 1.0f, key, begin);
  EXPECT_EQ(whole, parts);
}

TEST(FillTruncatedNormal, RedrawsNormalValuesOutsideTheRange) {
  const RandomKey key{11, 3};
  constexpr int64_t kCount = 400000;
  std::vector<float> cut(kCount), plain(kCount);
  fill_truncated_normal(cut.data(), kCount, 0.5f, key);
  fill_normal(plain.data(), kCount, 0.5f, key);
  double sum = 0, squares = 0, largest = 0;
  int64_t drawn_again = 0;
  for (size_t i = 0; i < cut.size(); ++i) {
    const bool inside = std::abs(plain[i]) <= 1.5f;
    EXPECT_EQ(cut[i] == plain[i], inside);
    drawn_again += inside ? 0 : 1;
    sum += cut[i];
    squares += static_cast<double>(cut[i]) * cut[i];
    largest = std::max(largest, std::abs(static_cast<double>(cut[i])));
  }
  // 0.27 % of normal values are outside the range; the truncated variance is
  // 1 - 6 φ(3) / (2 Φ(3) - 1) = 0.97334.
  EXPECT_NEAR(static_cast<double>(drawn_again) / kCount, 0.0027, 0.0003);
  EXPECT_NEAR(sum / kCount, 0, 0.003);
  EXPECT_NEAR(squares / kCount / 0.25, 0.97334, 0.008);
  EXPECT_LE(largest, 1.5);
  EXPECT_GT(largest, 1.49);
}

TEST(FillTruncatedNormal, AnyPartitionYieldsTheSameNumbers) {
  const RandomKey key{7, 1};
  std::vector<float> whole(9000), parts(9000);
  fill_truncated_normal(whole.data(), 9000, 1.0f, key);
  for (int64_t begin = 0, step = 1; begin < 9000; begin += step++)
    fill_truncated_normal(parts.data() + begin, std::min(step, 9000 - begin), 1.0f, key, begin);
  EXPECT_EQ(whole, parts);
}

}  // namespace
}  // namespace strata
