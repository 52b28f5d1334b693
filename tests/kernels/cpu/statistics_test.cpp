#include "kernels/cpu/statistics.h"

#include <cmath>
#include <limits>

#include "kernels/cpu/array_testing.h"
#include "kernels/cpu/optimizer.h"

namespace strata::cpu {
namespace {

using testing::Array;
using testing::expect_same_bits;

StatisticsTable measured(const MeasuredLines& lines, const void* x) {
  std::vector<StatisticsTable> blocks(static_cast<size_t>(measured_blocks(lines)));
  return measure(lines, x, blocks.data());
}

TEST(Statistics, CountWhatIsInAnArray) {
  constexpr float kSmallest = std::numeric_limits<float>::min(), kInfinity = HUGE_VALF;
  std::vector<float> x(70000, 0.5f);
  x[1] = x[69999] = 0;
  x[2] = -0.0f;
  x[3] = NAN;
  x[4] = -kInfinity;
  x[5] = kSmallest;
  x[6] = -kSmallest / 2;
  x[7] = 7;
  x[8] = -9;
  MeasuredLines lines = flat_lines(std::ssize(x), DType::kF32);
  lines.largest = 7;
  const StatisticsTable found = measured(lines, x.data());
  EXPECT_EQ(found.elements, 70000);
  EXPECT_EQ(found.zeros, 3);
  EXPECT_EQ(found.nonfinite, 2);
  EXPECT_EQ(found.flushed, 1);
  EXPECT_EQ(found.saturated, 2);
  EXPECT_EQ(found.greatest, 9);
  EXPECT_NEAR(found.sum, 0.5 * (70000 - 9) - 2, 1e-9);
  EXPECT_NEAR(found.squares, 0.25 * (70000 - 9) + 49 + 81, 1e-9);
}

TEST(Statistics, OfNothingAreZero) {
  const StatisticsTable found = measured(flat_lines(0, DType::kBF16), nullptr);
  EXPECT_EQ(found.elements, 0);
  EXPECT_EQ(found.zeros, 0);
  EXPECT_EQ(found.squares, 0);
}

TEST(Statistics, SameBitsForAnyThreads) {
  for (const DType dtype : testing::kActivationTypes) {
    const Array x = Array::random(dtype, 300001, 1), rows = Array::random(dtype, 9000 * 40, 2);
    expect_same_bits([&] {
      const StatisticsTable all[] = {
          measured(flat_lines(x.size(), dtype), x.data()),
          measured({.dtype = dtype, .lines = 9000 * 2, .length = 8, .per_row = 2, .stride = 40, .first = 24},
                   rows.data())};
      const auto* bytes = reinterpret_cast<const std::byte*>(all);
      return std::vector<std::byte>(bytes, bytes + sizeof all);
    });
  }
}

TEST(Statistics, DigestComesWithTheSameNorm) {
  Array x = Array::random(DType::kF32, 3 * kNormBlock + 5, 1);
  const auto blocks = static_cast<size_t>(norm_partials(x.size()));
  std::vector<double> norm(blocks), partials(blocks);
  std::vector<uint64_t> digests(blocks), changed(blocks);
  sum_of_squares_partials(x.f32(), x.size(), norm.data());
  squares_and_digests(x.f32(), x.size(), partials.data(), digests.data());
  EXPECT_EQ(partials, norm);
  uint64_t last = 0;
  for (int64_t i = 0; i < 5; ++i) {
    uint32_t bits = 0;
    std::memcpy(&bits, x.f32() + 3 * kNormBlock + i, sizeof bits);
    last += uint64_t{bits} * (2 * static_cast<uint64_t>(i) + 1);
  }
  EXPECT_EQ(digests.back(), last);
  // A sign, and two elements that change places.
  x.f32()[7] = -x.f32()[7];
  std::swap(x.f32()[kNormBlock], x.f32()[kNormBlock + 1]);
  squares_and_digests(x.f32(), x.size(), partials.data(), changed.data());
  EXPECT_NE(changed[0], digests[0]);
  EXPECT_NE(changed[1], digests[1]);
  EXPECT_EQ(changed[2], digests[2]);
}

TEST(Statistics, SampleIsSpreadOverAllElements) {
  for (const auto& [n, m] : {std::pair<int64_t, int64_t>{5, 5}, {100, 7}, {int64_t{1} << 40, 4096}}) {
    EXPECT_EQ(sampled_place(0, m, n), 0);
    EXPECT_LT(sampled_place(m - 1, m, n), n);
    EXPECT_GE(sampled_place(m - 1, m, n), n - n / m - 1);
  }
}

}  // namespace
}  // namespace strata::cpu
