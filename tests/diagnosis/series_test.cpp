// Statistics on values with known results.
#include "diagnosis/series.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

namespace strata::diagnosis {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

Series series_of(const std::vector<double>& values) {
  std::vector<int64_t> steps(values.size());
  std::iota(steps.begin(), steps.end(), 1);
  return {steps, values};
}

TEST(Series, KeepsFiniteValuesWithTheirSteps) {
  const Series series = series_of({1, kNan, 3, std::numeric_limits<double>::infinity(), 5});
  EXPECT_EQ(series.steps(), (std::vector<int64_t>{1, 3, 5}));
  EXPECT_EQ(series.values(), (std::vector<double>{1, 3, 5}));
  EXPECT_EQ(series.last(2).steps(), (std::vector<int64_t>{3, 5}));
  EXPECT_EQ(series.between(1, 4).values(), std::vector<double>{3});
  EXPECT_TRUE(series.between(5, 2).empty());
  const std::vector<int64_t> steps{1, 2};
  EXPECT_TRUE(Series(steps, {}).empty());
}

TEST(Statistics, OfKnownValues) {
  EXPECT_EQ(median_of({3, 1, 2}), 2);
  EXPECT_EQ(median_of({4, 1, 3, 2}), 2.5);
  EXPECT_TRUE(std::isnan(median_of({})));
  EXPECT_EQ(quantile_of({1, 2, 3, 4, 5}, 1), 5);
  EXPECT_NEAR(spread_of({1, 2, 3, 4, 100}), 1.4826, 1e-12);
  const double most = std::numeric_limits<double>::max();
  EXPECT_EQ(median_of({most, most}), most);
}

TEST(Levels, EndWithTheLastValueAndShowSinceWhen) {
  std::vector<double> values(35, 1);
  for (size_t i = 20; i < 35; ++i) values[i] = 2;
  const Series series = series_of(values);
  const auto levels = levels_of(series, 10);
  ASSERT_EQ(levels.size(), 3U);
  EXPECT_EQ(levels.front().first_step, 6);
  EXPECT_EQ(levels.back().last_step, 35);
  EXPECT_EQ(above_since(series, levels, 1.4), 21);
  EXPECT_EQ(above_since(series, levels, 2), std::nullopt);
}

TEST(Spikes, AreShortExcursionsUpwards) {
  std::vector<double> values(600, 1);
  for (size_t i = 0; i < values.size(); ++i) values[i] += i % 2 == 0 ? 0.01 : -0.01;
  values[100] = 2;
  values[101] = 3;
  values[200] = 0.1;                                 // downwards
  for (size_t i = 300; i < 330; ++i) values[i] = 2;  // a new level
  const auto spikes = spikes_of(series_of(values), 0.01);
  ASSERT_EQ(spikes.size(), 1U);
  EXPECT_EQ(spikes[0].first_step, 101);
  EXPECT_EQ(spikes[0].last_step, 102);
  EXPECT_EQ(spikes[0].value, 3);
  EXPECT_NEAR(spikes[0].usual, 1, 0.02);
}

}  // namespace
}  // namespace strata::diagnosis
