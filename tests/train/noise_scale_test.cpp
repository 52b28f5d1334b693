#include "train/noise_scale.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "base/error.h"

namespace strata::training {
namespace {

// Gradients of tokens are a true gradient plus noise, apart for groups of numbers with other spreads. The
// squares of the gradients of a batch in parts; `parts` of each group.
struct Simulation {
  std::vector<double> gradient, sigma;
  std::mt19937_64 random{7};

  double true_scale() const {
    double noise = 0, signal = 0;
    for (size_t i = 0; i < gradient.size(); ++i) {
      noise += sigma[i] * sigma[i];
      signal += gradient[i] * gradient[i];
    }
    return noise / signal;
  }
  NoiseSquares batch(int64_t tokens, int parts, int measured) {
    std::normal_distribution<double> normal;
    const double small = static_cast<double>(tokens) / parts;
    NoiseSquares squares{.parts = static_cast<double>(parts)};
    for (size_t i = 0; i < gradient.size(); ++i) {
      double sum = 0;
      for (int p = 0; p < parts; ++p) {
        const double part = gradient[i] + sigma[i] / std::sqrt(small) * normal(random);
        sum += part;
        if (p < measured) squares.part += part * part / measured;
      }
      squares.whole += std::pow(sum / parts, 2);
    }
    return squares;
  }
};

Simulation simulation(size_t numbers) {
  Simulation made;
  for (size_t i = 0; i < numbers; ++i) {
    made.gradient.push_back(0.01 * static_cast<double>(i % 7) - 0.02);
    made.sigma.push_back(0.5 + 0.1 * static_cast<double>(i % 5));
  }
  return made;
}

TEST(NoiseScale, IsWithinATenthOfTheTruth) {
  for (const auto& [parts, measured] : {std::pair{2, 1}, {8, 1}, {8, 4}, {4, 2}}) {
    Simulation of = simulation(600);
    NoiseScale noise;
    // The mean over estimates at the end: one has the spread of a few dozen steps.
    double sum = 0;
    int count = 0;
    for (int step = 0; step < 600; ++step) {
      const NoiseSquares squares[] = {of.batch(4096, parts, measured)};
      noise.add(squares, 4096);
      if (step < 100) continue;
      ASSERT_TRUE(noise.tokens());
      EXPECT_NEAR(*noise.tokens() / of.true_scale(), 1, 0.5) << step;
      sum += *noise.tokens();
      ++count;
    }
    EXPECT_NEAR(sum / count / of.true_scale(), 1, 0.1) << parts << " parts";
  }
}

// Parameters that are cut in other ways add up: each estimates its own share.
TEST(NoiseScale, AddsUpParametersInOtherParts) {
  Simulation a = simulation(400), b = simulation(400);
  b.random.seed(9);
  for (double& sigma : b.sigma) sigma *= 2;
  Simulation both = a;
  both.gradient.insert(both.gradient.end(), b.gradient.begin(), b.gradient.end());
  both.sigma.insert(both.sigma.end(), b.sigma.begin(), b.sigma.end());
  NoiseScale noise;
  double sum = 0;
  for (int step = 0; step < 400; ++step) {
    const NoiseSquares squares[] = {a.batch(8192, 4, 1), b.batch(8192, 16, 1)};
    noise.add(squares, 8192);
    if (step >= 100) sum += *noise.tokens() / 300;
  }
  EXPECT_NEAR(sum / both.true_scale(), 1, 0.1);
}

TEST(NoiseScale, ReportsNothingTooEarlyOrOfASinglePart) {
  Simulation of = simulation(100);
  NoiseScale noise;
  for (int step = 1; step < NoiseScale::kFewest; ++step) {
    const NoiseSquares squares[] = {of.batch(65536, 4, 1)};
    noise.add(squares, 65536);
    EXPECT_FALSE(noise.tokens()) << step;
  }
  const NoiseState before = noise.state();
  const double nan = std::nan("");
  noise.add(std::vector<NoiseSquares>{{1, 1, 1}, {nan, 1, 4}, {1, HUGE_VAL, 4}}, 65536);
  noise.add({}, 65536);
  EXPECT_EQ(noise.state(), before) << "a single part, or squares that are not finite";
  const NoiseSquares squares[] = {of.batch(65536, 4, 1)};
  noise.add(squares, 65536);
  EXPECT_TRUE(noise.tokens());
}

TEST(NoiseScale, ContinuesFromItsState) {
  Simulation of = simulation(50);
  NoiseScale noise;
  for (int step = 0; step < 20; ++step) {
    const NoiseSquares squares[] = {of.batch(4096, 4, 1)};
    noise.add(squares, 4096);
  }
  EXPECT_EQ(noise_state_from_json(to_json(noise.state()), "state.json"), noise.state());
  EXPECT_EQ(NoiseScale(noise.state()).tokens(), noise.tokens());
  EXPECT_THROW(noise_state_from_json("{}", "state.json"), DataError);
}

}  // namespace
}  // namespace strata::training
