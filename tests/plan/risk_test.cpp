#include "plan/risk.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"

namespace strata::planning {
namespace {

constexpr double kHour = 3600, kDay = 86400;
constexpr double kRsc = 6.5e-3;  // failures per node and day of RSC-1

FailureModel model(double devices, double save, double restart) {
  return {.mttf = mttf_of_nodes(devices / 8, kRsc), .restart = restart, .save = save};
}

TEST(Mttf, ByNodesAsPublished) {
  EXPECT_NEAR(mttf_of_nodes(1024 / 8.0, kRsc) / kHour, 28.8, 0.05);
  EXPECT_NEAR(mttf_of_nodes(16384 / 8.0, kRsc) / kHour, 1.80, 0.005);
  EXPECT_NEAR(mttf_of_nodes(131072 / 8.0, kRsc) / kHour, 0.23, 0.005);
  EXPECT_NEAR(mttf_of_nodes(2048, 3.8e-3) * 419 / kDay, 54, 0.2) << "Llama 3: 419 failures in 54 days";
}

TEST(Mttf, MeasuredRateOfTheJobTakesPrecedence) {
  const Catalogue catalogue = builtin_catalogue();
  const ClusterSpec& a100 = find_cluster(catalogue, "a100-80");
  const Mttf measured = mttf_of(a100, 1024);
  EXPECT_NEAR(measured.formula / kHour, 28.8, 0.05);
  EXPECT_NEAR(measured.seconds() / kHour, 7.9, 1e-9);
  EXPECT_NEAR(mttf_of(a100, 2048).seconds() / kHour, 7.9 / 2, 1e-9);
  EXPECT_FALSE(mttf_of(a100, 16384).measured);
  EXPECT_NEAR(mttf_of(a100, 16384).seconds() / kHour, 1.80, 0.005);
  // Llama 3: 419 interruptions in 54 days, by nodes and measured.
  const Mttf llama = mttf_of(find_cluster(catalogue, "h100-sxm"), 16384);
  EXPECT_NEAR(llama.formula / (54 * kDay / 419), 1, 0.01);
  EXPECT_NEAR(llama.seconds() / (54 * kDay / 419), 1, 0.01);
}

TEST(Interval, YoungAndDalyAsPublished) {
  EXPECT_NEAR(daly_interval(300, 24 * kHour) / 60, 116.7, 0.05);
  EXPECT_NEAR(daly_interval(300, 6 * kHour) / 60, 56.7, 0.05);
  EXPECT_NEAR(daly_interval(300, 15 * 60) / 60, 9.1, 0.05);
  EXPECT_EQ(daly_interval(300, 100), 100) << "saves that take longer than twice the MTBF";
  EXPECT_NEAR(young_interval(300, 24 * kHour), std::sqrt(2 * 300 * 24 * kHour), 1e-9);
  EXPECT_NEAR(availability_interval(10, 1000, 100), 10 + std::sqrt(2 * 1100 * 10 + 100.0), 1e-9);
}

// Δt* in s and ETTR from the reliability reference, r_f = 6.5e-3.
TEST(Ettr, TableOfTheReference) {
  struct Column {
    double save, restart;
  };
  constexpr Column kColumns[] = {{300, 300}, {60, 300}, {10, 300}, {1, 120}, {1, 30}};
  struct Cell {
    double interval, ettr;
  };
  struct Row {
    double devices;
    Cell cells[5];
  };
  constexpr Row kRows[] = {
      {1024, {{7894, 0.924}, {3530, 0.964}, {1441, 0.983}, {456, 0.994}, {456, 0.995}}},
      {4096, {{3947, 0.848}, {1765, 0.923}, {721, 0.961}, {228, 0.987}, {228, 0.990}}},
      {16384, {{1973, 0.696}, {883, 0.829}, {360, 0.901}, {114, 0.964}, {114, 0.978}}},
      {131072, {{698, 0.140}, {312, 0.367}, {127, 0.512}, {40, 0.807}, {40, 0.915}}},
  };
  for (const Row& row : kRows) {
    for (size_t i = 0; i < 5; ++i) {
      const FailureModel failures = model(row.devices, kColumns[i].save, kColumns[i].restart);
      const double interval = young_interval(failures.save, failures.mttf);
      EXPECT_NEAR(interval, row.cells[i].interval, 0.6) << row.devices;
      EXPECT_NEAR(ettr_linear(failures, interval), row.cells[i].ettr, 6e-4) << row.devices << " " << i;
    }
  }
}

TEST(Ettr, FormulaAgreesWithMonteCarloWithinFivePercent) {
  for (const double devices : {1024.0, 16384.0, 131072.0}) {
    for (const auto& [save, restart] : {std::pair{300.0, 300.0}, {60.0, 300.0}, {10.0, 120.0}}) {
      const FailureModel failures = model(devices, save, restart);
      const double interval = daly_interval(save, failures.mttf);
      const SimulatedRuns runs = simulate_runs(failures, interval, 200 * failures.mttf, 60);
      EXPECT_NEAR(ettr(failures, interval) / runs.ettr, 1, 0.05) << devices << " " << save;
      if (devices < 20000 && save < 300) {
        EXPECT_NEAR(ettr_linear(failures, interval) / runs.ettr, 1, 0.05) << devices << " " << save;
      }
      EXPECT_NEAR(runs.elapsed_mean, 200 * failures.mttf + runs.lost_mean + runs.saving_mean + runs.down_mean,
                  1e-6 * runs.elapsed_mean)
          << "every second is counted once";
      EXPECT_LT(runs.elapsed_p10, runs.elapsed_p90);
    }
  }
}

TEST(Ettr, PreemptionsAgreeWithMonteCarlo) {
  FailureModel failures = model(4096, 60, 300);
  failures.preemption_mttf = 2 * kHour;
  failures.preemption_wait = 600;
  const double interval = best_interval(failures);
  const SimulatedRuns runs = simulate_runs(failures, interval, 60 * kDay, 60);
  EXPECT_NEAR(ettr(failures, interval) / runs.ettr, 1, 0.05);
  failures.mttf = 0;  // only preemptions
  const SimulatedRuns alone = simulate_runs(failures, interval, 60 * kDay, 20);
  EXPECT_NEAR(ettr(failures, interval) / alone.ettr, 1, 0.02);
  EXPECT_EQ(alone.lost_mean, 0) << "preempted jobs save first";
}

TEST(Ettr, BestIntervalIsTheBest) {
  const FailureModel failures = model(16384, 60, 300);
  const double best = best_interval(failures);
  EXPECT_NEAR(best / daly_interval(60, failures.mttf), 1, 0.02);
  for (const double factor : {0.7, 1.4}) EXPECT_LT(ettr(failures, best * factor), ettr(failures, best));
  EXPECT_EQ(ettr({}, 100), 1) << "no failures, no saves";
  EXPECT_GT(ettr({.mttf = kHour, .restart = 0, .save = 0}, best_interval({.mttf = kHour})), 0.999);
}

TEST(Ettr, ARunThatNeverEndsIsAnError) {
  EXPECT_THROW(simulate_runs({.mttf = 10, .restart = 100, .save = 1}, 100, 1e5, 1), ConfigError);
  EXPECT_THROW(simulate_runs({.mttf = 1, .restart = 1e9, .save = 1}, 100, 1e5, 1), ConfigError);
  EXPECT_THROW(simulate_runs({}, 0, 1e5, 1), ConfigError);
  EXPECT_THROW(simulate_runs({}, 1e-3, 1e9, 1), ConfigError);
}

TEST(Ettr, LargeJobsNeedShortSaves) {
  // Above 16k devices ETTR exceeds .9 only with short saves, and then restarts dominate.
  EXPECT_LT(ettr_linear(model(16384, 60, 300), 883), 0.9);
  EXPECT_GT(ettr_linear(model(16384, 1, 120), 114), 0.95);
}

TEST(Spares, CoverTheBinomialTail) {
  EXPECT_EQ(spare_nodes(100, 0), 0);
  // P(X <= 3) = .9816, P(X <= 4) = .9966 for 100 nodes at 1 %.
  EXPECT_EQ(spare_nodes(100, 0.01), 4);
  EXPECT_EQ(spare_nodes(100, 0.01, 0.98), 3);
  EXPECT_GT(spare_nodes(20000, 0.01), 200);
  EXPECT_LT(spare_nodes(20000, 0.01), 260);
  EXPECT_NEAR(straggler_waste(1.25), 0.2, 1e-12);
}

}  // namespace
}  // namespace strata::planning
