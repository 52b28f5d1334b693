#include "data/samples/mixture.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "data/samples/skip_ranges.h"
#include "fixtures/temporary_folder.h"

namespace strata::data {
namespace {

constexpr int64_t kForEver = Mixture::kUnbounded;

TEST(Mixture, CountsFollowTheWeightsAtEveryPrefix) {
  const std::vector<double> weights{0.67, 0.2, 0.1, 0.03};
  const Mixture mixture({{0, weights}}, {kForEver, kForEver, kForEver, kForEver});
  EXPECT_EQ(mixture.total(), kForEver);
  std::vector<int64_t> counts(4);
  for (int64_t i = 0; i < 200000; ++i) {
    const auto [source, index] = mixture(i);
    const auto k = static_cast<size_t>(source);
    ASSERT_EQ(index, counts[k]) << "sample " << i;  // each source's samples come in order, none left out
    ++counts[k];
    for (size_t s = 0; s < 4; ++s) {
      const double exact = weights[s] * static_cast<double>(i + 1);
      ASSERT_LE(std::abs(static_cast<double>(counts[s]) - exact), 4 + static_cast<double>(i) / 131072.0);
    }
  }
}

TEST(Mixture, RandomAccessFarAway) {
  const Mixture mixture({{0, {0.5, 0.5}}}, {kForEver, kForEver});
  const int64_t far = int64_t{1} << 40;
  const auto here = mixture(far), next = mixture(far + 1);
  EXPECT_NE(here.source, next.source);
  EXPECT_NEAR(static_cast<double>(here.index), static_cast<double>(far) / 2, 2);
}

TEST(Mixture, TinyWeightsStillReceiveSamples) {
  const Mixture mixture({{0, {1.0, 1e-9}}}, {kForEver, kForEver});
  int64_t rare = 0;
  for (int64_t i = 0; i < 65536; ++i) rare += mixture(i).source;
  EXPECT_EQ(rare, 1);
}

TEST(Mixture, ExhaustedSourcesLeaveTheMixture) {
  const std::vector<int64_t> limits{100, 1000, 70000};
  const Mixture mixture({{0, {0.5, 0.3, 0.2}}}, limits);
  ASSERT_EQ(mixture.total(), 71100);
  std::vector<int64_t> counts(3);
  for (int64_t i = 0; i < mixture.total(); ++i) {
    const auto [source, index] = mixture(i);
    const auto k = static_cast<size_t>(source);
    ASSERT_EQ(index, counts[k]);
    ++counts[k];
    ASSERT_LE(counts[k], limits[k]);
    if (i == 199) {
      EXPECT_NEAR(static_cast<double>(counts[0]), 100, 2);
    }
  }
  EXPECT_EQ(counts, limits);
  EXPECT_THROW(mixture(mixture.total()), InternalError);
}

TEST(Mixture, OneSourceIsPlainCounting) {
  const Mixture mixture({{0, {3.0}}}, {10});
  EXPECT_EQ(mixture.total(), 10);
  for (int64_t i = 0; i < 10; ++i) EXPECT_EQ(mixture(i).index, i);
}

TEST(Mixture, PhasesChangeTheWeights) {
  const Mixture mixture({{0, {1.0, 0.0}}, {1000, {0.25, 0.75}}}, {kForEver, kForEver});
  std::vector<int64_t> counts(2);
  for (int64_t i = 0; i < 3000; ++i) {
    const auto [source, index] = mixture(i);
    if (i < 1000) {
      ASSERT_EQ(source, 0);
    }
    ASSERT_EQ(index, counts[static_cast<size_t>(source)]++);
  }
  EXPECT_NEAR(static_cast<double>(counts[1]), 1500, 2);
}

TEST(SkipRanges, TrainedSamplesAreTheRemainingOnesInOrder) {
  const SkipRanges skip({{20, 25}, {3, 5}, {4, 8}, {25, 26}, {30, 30}});
  std::vector<int64_t> expected;
  for (int64_t global = 0; global < 60; ++global) {
    if (!((global >= 3 && global < 8) || (global >= 20 && global < 26))) expected.push_back(global);
  }
  for (size_t n = 0; n < expected.size(); ++n) {
    EXPECT_EQ(skip.global_of(static_cast<int64_t>(n)), expected[n]);
    EXPECT_EQ(skip.trained_before(expected[n]), static_cast<int64_t>(n));
  }
  EXPECT_EQ(skip.trained_before(5), 3);
  EXPECT_EQ(SkipRanges().global_of(77), 77);
  EXPECT_EQ(SkipRanges({{0, 4}}).global_of(0), 4);
  expect_error(ErrorKind::kConfig, {"data.skip", "9 to 3"}, [] { SkipRanges({{9, 3}}); });
}

TEST(Mixture, GivenCountsThePlaces) {
  const Mixture mixture({{0, {3, 1, 0}}, {70000, {0, 1, 2}}, {140000, {1, 1, 1}}},
                        {Mixture::kUnbounded, 20000, 90000});
  std::vector<int64_t> given(3);
  for (int64_t i = 0; i < 210000; ++i) {
    if (i % 997 == 0 || i == 70000 || i == 140000) {
      for (size_t k = 0; k < 3; ++k) ASSERT_EQ(mixture.given(static_cast<int64_t>(k), i), given[k]) << i;
    }
    ++given[static_cast<size_t>(mixture(i).source)];
  }
}

// Conneau et al. 2020: q = p^0.3 / sum of p^0.3; the shares of numpy for these three sizes.
TEST(Mixture, TemperatureMatchesThePublishedExponent) {
  const auto shares = temperature_weights({1000000, 100000, 1000}, 1 / 0.3);
  ASSERT_EQ(shares.size(), 3u);
  EXPECT_NEAR(shares[0], 0.61459802, 1e-8);
  EXPECT_NEAR(shares[1], 0.30802868, 1e-8);
  EXPECT_NEAR(shares[2], 0.07737331, 1e-8);
  const auto in_proportion = temperature_weights({300, 100}, 1);
  EXPECT_NEAR(in_proportion[0], 0.75, 1e-12);
  const auto even = temperature_weights({int64_t{1} << 50, 1}, 1e9);
  EXPECT_NEAR(even[0], 0.5, 1e-6);
}

}  // namespace
}  // namespace strata::data
