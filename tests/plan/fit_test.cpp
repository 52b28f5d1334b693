#include "plan/fit.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "base/random.h"
#include "plan/minimize.h"

namespace strata::planning {
namespace {

double uniform(uint64_t family, uint64_t k) {
  return uniform_float(philox({family, 11}, k)[0]);
}

// A law whose terms have similar sizes around 1e9 parameters and 2e10 tokens.
LossLaw random_law(uint64_t family) {
  LossLaw law{1.5 + 0.5 * uniform(family, 0), 0, 0, 0.25 + 0.2 * uniform(family, 1),
              0.25 + 0.2 * uniform(family, 2)};
  law.a = (0.6 + 0.6 * uniform(family, 3)) * std::pow(1e9, law.alpha);
  law.b = (0.4 + 0.6 * uniform(family, 4)) * std::pow(2e10, law.beta);
  return law;
}

// Runs on a grid of sizes and tokens, with noise added to the loss.
std::vector<RunPoint> runs_of(const LossLaw& law, double noise, uint64_t family) {
  std::vector<RunPoint> runs;
  for (int i = 0; i < 7; ++i) {
    for (int j = 0; j < 7; ++j) {
      float normal = 0.0f;
      fill_normal(&normal, 1, 1.0f, {family, 12}, i * 7 + j);
      RunPoint run{5e7 * std::pow(2.0, i), 1e9 * std::pow(2.2, j), 0.0};
      run.loss = law.loss(run.params, run.tokens) * std::exp(noise * static_cast<double>(normal));
      runs.push_back(run);
    }
  }
  return runs;
}

TEST(Minimize, FindsTheMinimumOfRosenbrocksFunction) {
  const Minimum found = minimize(
      [](std::span<const double> x, std::span<double> gradient) {
        const double a = 1 - x[0], b = x[1] - x[0] * x[0];
        gradient[0] = -2 * a - 400 * x[0] * b;
        gradient[1] = 200 * b;
        return a * a + 100 * b * b;
      },
      {-1.2, 1.0});
  EXPECT_TRUE(found.converged);
  EXPECT_NEAR(found.x[0], 1, 1e-5);
  EXPECT_NEAR(found.x[1], 1, 1e-5);
}

TEST(Minimize, StopsAtAKinkAndAtTheBoundaryOfTheDomain) {
  const Minimum kink = minimize(
      [](std::span<const double> x, std::span<double> gradient) {
        gradient[0] = x[0] > 3 ? 1 : -1;
        gradient[1] = 2 * x[1];
        return std::abs(x[0] - 3) + x[1] * x[1];
      },
      {0.0, 5.0});
  EXPECT_NEAR(kink.x[0], 3, 1e-4);
  const Minimum border = minimize(
      [](std::span<const double> x, std::span<double> gradient) {
        gradient[0] = 1 - 1 / x[0];
        return x[0] > 0 ? x[0] - std::log(x[0]) : INFINITY;
      },
      {30.0});
  EXPECT_NEAR(border.x[0], 1, 1e-6);
}

TEST(FitLossLaw, FindsTheLawWithoutNoise) {
  for (uint64_t family = 1; family <= 5; ++family) {
    const LossLaw law = random_law(family);
    const LawFit fit = fit_loss_law(runs_of(law, 0.0, family), {.huber_delta = 1e-3, .bootstraps = 0});
    EXPECT_NEAR(fit.law.alpha, law.alpha, 1e-3);
    EXPECT_NEAR(fit.law.beta, law.beta, 1e-3);
    EXPECT_NEAR(fit.law.e, law.e, 5e-3);
    EXPECT_TRUE(std::isnan(fit.alpha.low)) << "no interval without a bootstrap";
  }
}

TEST(FitLossLaw, IsRobustToAnOutlier) {
  const LossLaw law = random_law(3);
  std::vector<RunPoint> runs = runs_of(law, 0.002, 3);
  runs[10].loss *= 1.5;
  const LawFit fit = fit_loss_law(runs, {.bootstraps = 0});
  EXPECT_NEAR(fit.law.alpha, law.alpha, 0.02);
  EXPECT_NEAR(fit.law.beta, law.beta, 0.02);
}

// Over 100 families of runs with 1 % noise, the 90 % interval of each exponent must contain the true value 80
// to 97 times.
TEST(FitLossLaw, IntervalsHaveTheirNominalCoverage) {
  int alpha = 0, beta = 0, exponent = 0, params = 0;
  constexpr double kBudget = 1e22;
  for (uint64_t family = 1; family <= 100; ++family) {
    const LossLaw law = random_law(family);
    const LawFit fit = fit_loss_law(runs_of(law, 0.01, family), {.seed = family});
    const auto holds = [](const Interval& interval, double truth) {
      return interval.low <= truth && truth <= interval.high ? 1 : 0;
    };
    alpha += holds(fit.alpha, law.alpha);
    beta += holds(fit.beta, law.beta);
    exponent += holds(fit.params_exponent, law.beta / (law.alpha + law.beta));
    params += holds(allocate_flops(fit, kBudget).params, optimum_for_flops(law, kBudget).params);
    EXPECT_NEAR(fit.residual, 0.01, 0.006) << family;
  }
  for (const int count : {alpha, beta, exponent, params}) {
    EXPECT_GE(count, 80);
    EXPECT_LE(count, 97);
  }
}

TEST(FitLossLaw, IntervalsDependOnlyOnTheSeed) {
  const std::vector<RunPoint> runs = runs_of(random_law(9), 0.01, 9);
  const LawFit first = fit_loss_law(runs, {.bootstraps = 20}), again = fit_loss_law(runs, {.bootstraps = 20});
  EXPECT_EQ(first.alpha.low, again.alpha.low);
  EXPECT_NE(first.alpha.low, fit_loss_law(runs, {.bootstraps = 20, .seed = 2}).alpha.low);
}

TEST(FitLossLaw, RejectsRunsThatDetermineNoLaw) {
  std::vector<RunPoint> runs = runs_of(random_law(1), 0.0, 1);
  EXPECT_THROW(fit_loss_law(std::span(runs).first(5)), DataError) << "too few";
  EXPECT_THROW(fit_loss_law(std::span(runs).first(7)), DataError) << "one size";
  EXPECT_THROW(fit_loss_law({}), DataError);
  runs[3].loss = -1;
  EXPECT_THROW(fit_loss_law(runs), DataError);
  runs[3].loss = NAN;
  EXPECT_THROW(fit_loss_law(runs), DataError);
}

TEST(FitIsoFlop, FindsTheExponentOfTheLaw) {
  const LossLaw law = find_allocation_law("chinchilla").loss.value();
  std::vector<RunPoint> runs;
  for (int budget = 0; budget < 6; ++budget) {
    const double flops = 6e18 * std::pow(10.0, 0.5 * budget);
    for (int size = -3; size <= 3; ++size) {
      const double params = optimum_for_flops(law, flops).params * std::pow(1.3, size);
      runs.push_back({params, flops / (6 * params), law.loss(params, flops / (6 * params))});
    }
  }
  const IsoFlopFit fit = fit_isoflop(runs);
  EXPECT_EQ(fit.budgets.size(), 6u);
  EXPECT_NEAR(fit.params.exponent, law.beta / (law.alpha + law.beta), 0.005);
  EXPECT_NEAR(fit.params.exponent + fit.tokens.exponent, 1.0, 1e-9);
  EXPECT_NEAR(fit.params.at(1e21) / optimum_for_flops(law, 1e21).params, 1.0, 0.02);
  EXPECT_THROW(fit_isoflop(std::span(runs).first(14)), DataError) << "two budgets";
}

// Curves of a law whose losses fall with every token: the envelope has the law's exponent.
TEST(FitEnvelope, FindsTheExponentOfTheLaw) {
  const LossLaw law = find_allocation_law("chinchilla").loss.value();
  std::vector<RunCurve> curves;
  for (int size = 0; size < 16; ++size) {
    RunCurve curve{.params = 2e7 * std::pow(1.4, size), .tokens = {}, .loss = {}};
    const double longest = 4 * optimum_for_params(law, curve.params).tokens;
    for (int step = 1; step <= 400; ++step) {
      curve.tokens.push_back(longest * step / 400);
      curve.loss.push_back(law.loss(curve.params, curve.tokens.back()));
    }
    curves.push_back(curve);
  }
  const EnvelopeFit fit = fit_envelope(curves);
  EXPECT_NEAR(fit.params.exponent, law.beta / (law.alpha + law.beta), 0.02);
  EXPECT_NEAR(fit.params.at(1e19) / optimum_for_flops(law, 1e19).params, 1.0, 0.1);
  EXPECT_GE(fit.sizes, 10);
  EXPECT_LT(fit.low, fit.high);
  EXPECT_THROW(fit_envelope(std::span(curves).first(2)), DataError);
  EXPECT_THROW(fit_envelope({}), DataError);
  curves.resize(4);
  for (RunCurve& curve : curves) curve.loss.assign(curve.loss.size(), NAN);
  EXPECT_THROW(fit_envelope(curves), DataError);
}

}  // namespace
}  // namespace strata::planning
