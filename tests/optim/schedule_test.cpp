#include "optim/schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace strata::optim {
namespace {

const std::map<std::string, ScheduleKind> kKinds = {{"cosine", ScheduleKind::kCosine},
                                                    {"wsd", ScheduleKind::kWsd},
                                                    {"linear", ScheduleKind::kLinear},
                                                    {"constant", ScheduleKind::kConstant},
                                                    {"inverse_sqrt", ScheduleKind::kInverseSqrt}};
const std::map<std::string, DecayShape> kShapes = {
    {"linear", DecayShape::kLinear}, {"sqrt", DecayShape::kSqrt}, {"cosine", DecayShape::kCosine}};

// Learning rates of the schedulers in transformers: tools/golden/make_schedule_golden.py.
TEST(ScheduleTest, AgreesWithTransformers) {
  std::ifstream file(std::string(STRATA_TEST_DATA) + "/optim/schedules.csv");
  std::string line;
  ASSERT_TRUE(std::getline(file, line));
  size_t rows = 0;
  while (std::getline(file, line)) {
    std::vector<std::string> cells;
    std::istringstream row(line);
    for (std::string cell; std::getline(row, cell, ',');) cells.push_back(cell);
    ASSERT_EQ(cells.size(), 9u);
    const ScheduleConfig schedule{.kind = kKinds.at(cells[0]),
                                  .lr = std::stod(cells[2]),
                                  .warmup_steps = std::stoll(cells[3]),
                                  .steps = std::stoll(cells[4]),
                                  .min_lr_ratio = std::stod(cells[5]),
                                  .decay_ratio = std::stod(cells[6]),
                                  .decay = kShapes.at(cells[1])};
    const double expected = std::stod(cells[8]);
    EXPECT_NEAR(learning_rate(schedule, std::stoll(cells[7])), expected, 1e-12 * schedule.lr) << line;
    ++rows;
  }
  EXPECT_GT(rows, 500u);
}

TEST(ScheduleTest, WarmupIsTheSameForEveryKind) {
  for (const auto& [name, kind] : kKinds) {
    const ScheduleConfig schedule{.kind = kind, .lr = 2.0, .warmup_steps = 4, .steps = 10};
    EXPECT_EQ(learning_rate(schedule, 1), 0.5) << name;
    EXPECT_EQ(learning_rate(schedule, 3), 1.5) << name;
    EXPECT_EQ(learning_rate(schedule, 4), 2.0) << name;
  }
}

TEST(ScheduleTest, EndsAtTheFloorAndStaysThere) {
  for (const auto& [name, kind] : kKinds) {
    if (kind == ScheduleKind::kConstant || kind == ScheduleKind::kInverseSqrt) continue;
    const ScheduleConfig schedule{
        .kind = kind, .lr = 1.0, .warmup_steps = 3, .steps = 20, .min_lr_ratio = 0.25, .decay_ratio = 0.4};
    EXPECT_NEAR(learning_rate(schedule, 20), 0.25, 1e-15) << name;
    EXPECT_NEAR(learning_rate(schedule, 1000), 0.25, 1e-15) << name;
    for (int64_t step = 4; step < 20; ++step) {
      EXPECT_LE(learning_rate(schedule, step + 1), learning_rate(schedule, step)) << name << " " << step;
    }
  }
  const ScheduleConfig slow{
      .kind = ScheduleKind::kInverseSqrt, .lr = 1.0, .warmup_steps = 1, .steps = 5, .min_lr_ratio = 0.5};
  EXPECT_EQ(learning_rate(slow, 1'000'000), 0.5);
}

TEST(ScheduleTest, DegenerateHorizons) {
  for (const auto& [name, kind] : kKinds) {
    for (const int64_t warmup : {0, 1, 5}) {
      const ScheduleConfig schedule{
          .kind = kind, .lr = 1.0, .warmup_steps = warmup, .steps = 1, .min_lr_ratio = 0.1};
      for (int64_t step = 1; step < 8; ++step) {
        const double rate = learning_rate(schedule, step);
        EXPECT_TRUE(std::isfinite(rate) && rate > 0.0 && rate <= 1.0) << name << " " << warmup << " " << step;
      }
    }
  }
  EXPECT_EQ(wsd_decay_steps({.kind = ScheduleKind::kWsd, .warmup_steps = 8, .steps = 10, .decay_ratio = 0.9}),
            2);
  EXPECT_EQ(wsd_decay_steps({.kind = ScheduleKind::kWsd, .steps = 10, .decay_ratio = 0.0}), 0);
}

}  // namespace
}  // namespace strata::optim
