// The published schedules: their orders, and their simulated times and peaks.
#include "parallel/schedules.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "parallel/simulate.h"

namespace strata::parallel {
namespace {

// "F0.1 I1.0 F0.2&B1.0": kind, chunk, micro-batch.
std::string order_of(const Schedule& schedule, int32_t rank) {
  const std::vector<int32_t> stages = schedule.stages_of(rank);
  const auto chunk = [&](int32_t stage) {
    return std::find(stages.begin(), stages.end(), stage) - stages.begin();
  };
  std::string text;
  for (const Action& a : schedule.ranks[static_cast<size_t>(rank)]) {
    if (!text.empty()) text += ' ';
    if (a.kind == ActionKind::kForwardBackward) {
      text += fmt::format("F{}.{}&B{}.{}", chunk(a.stage), a.micro_batch, chunk(a.backward_stage),
                          a.backward_micro_batch);
    } else {
      text += fmt::format("{}{}.{}", letters_of(a.kind), chunk(a.stage), a.micro_batch);
    }
  }
  return text;
}

TEST(Schedules, OrdersAsPublished) {
  struct Golden {
    ScheduleRequest request;
    std::vector<std::string_view> ranks;
  };
  const Golden goldens[] = {
      {{"1f1b", 2, 4},
       {"F0.0 F0.1 B0.0 F0.2 B0.1 F0.3 B0.2 B0.3", "F0.0 B0.0 F0.1 B0.1 F0.2 B0.2 F0.3 B0.3"}},
      {{"interleaved", 2, 4, 2},
       {"F0.0 F0.1 F1.0 F1.1 F0.2 B1.0 F0.3 B1.1 F1.2 B0.0 F1.3 B0.1 B1.2 B1.3 B0.2 B0.3",
        "F0.0 F0.1 F1.0 B1.0 F1.1 B1.1 F0.2 B0.0 F0.3 B0.1 F1.2 B1.2 F1.3 B1.3 B0.2 B0.3"}},
      {{"zb_h1", 2, 4},
       {"F0.0 F0.1 I0.0 W0.0 F0.2 I0.1 W0.1 F0.3 I0.2 W0.2 I0.3 W0.3",
        "F0.0 I0.0 F0.1 I0.1 W0.0 F0.2 I0.2 W0.1 F0.3 I0.3 W0.2 W0.3"}},
      {{"zbv", 2, 4},
       {"F0.0 F0.1 F0.2 F1.0 I1.0 W1.0 F1.1 I1.1 W1.1 F0.3 I0.0 W0.0 F1.2 I1.2 W1.2 I0.1 W0.1 F1.3 I1.3 W1.3 "
        "I0.2 W0.2 I0.3 W0.3",
        "F0.0 F1.0 F0.1 F1.1 I1.0 W1.0 F0.2 I0.0 W0.0 F1.2 I1.1 W1.1 F0.3 I0.1 W0.1 F1.3 I1.2 W1.2 I0.2 I1.3 "
        "I0.3 W0.2 W1.3 W0.3"}},
      {{"dualpipev", 2, 4},
       {"F0.0 F0.1 F0.2 F1.0 I1.0 W1.0 F1.1 F0.3&B1.1 F1.2&B0.0 B1.2 F1.3&B0.1 B1.3 I0.2 W0.2 I0.3 W0.3",
        "F0.0 F1.0 F0.1 F1.1 F0.2 B1.0 F1.2&B0.0 F0.3&B1.1 F1.3&B0.1 B1.2 B0.2 I1.3 I0.3 W1.3 W0.3"}},
      {{"zb_h1", 4, 6},
       {"F0.0 F0.1 F0.2 F0.3 I0.0 W0.0 F0.4 I0.1 W0.1 F0.5 I0.2 W0.2 I0.3 W0.3 I0.4 W0.4 I0.5 W0.5",
        "F0.0 F0.1 F0.2 I0.0 F0.3 I0.1 W0.0 F0.4 I0.2 W0.1 F0.5 I0.3 W0.2 I0.4 W0.3 I0.5 W0.4 W0.5",
        "F0.0 F0.1 I0.0 F0.2 I0.1 F0.3 I0.2 W0.0 F0.4 I0.3 W0.1 F0.5 I0.4 W0.2 I0.5 W0.3 W0.4 W0.5",
        "F0.0 I0.0 F0.1 I0.1 F0.2 I0.2 F0.3 I0.3 W0.0 F0.4 I0.4 W0.1 F0.5 I0.5 W0.2 W0.3 W0.4 W0.5"}},
  };
  for (const Golden& golden : goldens) {
    const Schedule schedule = make_schedule(golden.request);
    ASSERT_EQ(schedule.ranks.size(), golden.ranks.size());
    for (size_t rank = 0; rank < golden.ranks.size(); ++rank) {
      EXPECT_EQ(order_of(schedule, static_cast<int32_t>(rank)), golden.ranks[rank])
          << golden.request.name << ", rank " << rank;
    }
  }
}

TEST(Schedules, InterleavedWarmUp) {
  const Schedule schedule = make_schedule({"interleaved", 4, 8, 2});
  for (int32_t rank = 0; rank < 4; ++rank) {
    const auto& actions = schedule.ranks[static_cast<size_t>(rank)];
    const auto backward = std::find_if(actions.begin(), actions.end(),
                                       [](const Action& a) { return a.kind == ActionKind::kBackward; });
    // One more F precedes the first B.
    EXPECT_EQ(backward - actions.begin(), 10 - 2 * rank + 1);
  }
}

constexpr std::array<int32_t, 5> kRanks = {2, 4, 6, 8, 16};

struct Row {
  ScheduleRequest request;  // without sizes
  // For 2, 4, 6, 8, 16 ranks: makespan with two and four micro-batches per rank, bubble, peak.
  std::array<std::array<double, 4>, 5> values;
};

// One unit for each of F, I and W of a rank's share of the model.
const Row kEvenRows[] = {
    {{"gpipe"},
     {{{15, 27, 3, -1}, {33, 57, 9, -1}, {51, 87, 15, -1}, {69, 117, 21, -1}, {141, 237, 45, -1}}}},
    {{"1f1b"}, {{{15, 27, 3, 2}, {33, 57, 9, 4}, {51, 87, 15, 6}, {69, 117, 21, 8}, {141, 237, 45, 16}}}},
    {{"interleaved", 1, 1, 2},
     {{{13.5, 25.5, 1.5, 2.5},
       {28.5, 52.5, 4.5, 5.5},
       {43.5, 79.5, 7.5, 8.5},
       {58.5, 106.5, 10.5, 11.5},
       {118.5, 214.5, 22.5, 23.5}}}},
    {{"interleaved", 1, 1, 4},
     {{{12.75, 24.75, 0.75, 2.25},
       {26.25, 50.25, 2.25, 4.75},
       {39.75, 75.75, 3.75, 7.25},
       {53.25, 101.25, 5.25, 9.75},
       {107.25, 203.25, 11.25, 19.75}}}},
    {{"zb_h1"}, {{{13, 25, 1, 2}, {27, 51, 3, 4}, {41, 77, 5, 6}, {55, 103, 7, 8}, {111, 207, 15, 16}}}},
    {{"zbv"},
     {{{12.5, 24.5, 0.5, 2},
       {25.5, 49.5, 1.5, 4},
       {38.5, 74.5, 2.5, 6},
       {51.5, 99.5, 3.5, 8},
       {103.5, 199.5, 7.5, 16}}}},
    {{"v_half"},
     {{{14.5, 26.5, 2.5, 2}, {30, 54, 6, 3}, {45.5, 81.5, 9.5, 4}, {61, 109, 13, 5}, {123, 219, 27, 9}}}},
    {{"v_min"},
     {{{13.5, 25.5, 1.5, 2},
       {29.5, 53.5, 5.5, 2},
       {46.5, 82.5, 10.5, 3},
       {61.5, 109.5, 13.5, 4},
       {125.5, 221.5, 29.5, 6}}}},
    {{"dualpipev"},
     {{{13, 25, 1, 2.5}, {27, 51, 3, 4.5}, {41, 77, 5, 6.5}, {55, 103, 7, 8.5}, {111, 207, 15, 16.5}}}},
};

Schedule sized(ScheduleRequest request, int32_t ranks, int32_t micro_batches) {
  request.ranks = ranks;
  request.micro_batches = micro_batches;
  return make_schedule(request);
}

TEST(Schedules, ValuesOfEvenCosts) {
  for (const Row& row : kEvenRows) {
    for (size_t i = 0; i < kRanks.size(); ++i) {
      for (const int32_t factor : {2, 4}) {
        const int32_t micro_batches = factor * kRanks[i];
        const Schedule schedule = sized(row.request, kRanks[i], micro_batches);
        const Simulation result = simulate(schedule, even_costs(schedule));
        SCOPED_TRACE(fmt::format("{} x{}, {} ranks, {} micro-batches", row.request.name,
                                 row.request.virtual_stages, kRanks[i], micro_batches));
        EXPECT_DOUBLE_EQ(result.makespan, row.values[i][factor == 2 ? 0 : 1]);
        EXPECT_DOUBLE_EQ(result.peak(), row.values[i][3] < 0 ? micro_batches : row.values[i][3]);
        for (int32_t rank = 0; rank < kRanks[i]; ++rank)
          EXPECT_NEAR(result.bubble(rank), row.values[i][2], 1e-9);
      }
    }
  }
}

TEST(Schedules, ValuesOfOneMicroBatchPerRank) {
  struct {
    ScheduleRequest request;
    double of_4, of_8;
  } const rows[] = {{{"1f1b"}, 12 + 9, 24 + 21}, {{"interleaved", 1, 1, 2}, 16.5, 34.5},
                    {{"zb_h1"}, 15, 31},         {{"zbv"}, 15, 31},
                    {{"v_half"}, 18, 37},        {{"v_min"}, 17.5, 37.5}};
  for (const auto& row : rows) {
    for (const int32_t ranks : {4, 8}) {
      const Schedule schedule = sized(row.request, ranks, ranks);
      EXPECT_DOUBLE_EQ(simulate(schedule, even_costs(schedule)).makespan, ranks == 4 ? row.of_4 : row.of_8)
          << row.request.name << ", " << ranks << " ranks";
    }
  }
  const Schedule interleaved = sized({"interleaved", 1, 1, 2}, 8, 8);
  EXPECT_DOUBLE_EQ(simulate(interleaved, even_costs(interleaved)).peak(), 8);
}

TEST(Schedules, PeakOfEachRank) {
  struct {
    ScheduleRequest request;
    std::vector<double> peaks;
  } const rows[] = {{{"1f1b", 4, 16}, {4, 3, 2, 1}},
                    {{"interleaved", 4, 16, 2}, {5.5, 4.5, 3.5, 2.5}},
                    {{"interleaved", 4, 16, 4}, {4.75, 4.25, 3.75, 3.25}},
                    {{"interleaved", 8, 16, 2}, {11.5, 10.5, 9.5, 8.5, 7.5, 6.5, 5.5, 4.5}},
                    {{"zb_h1", 4, 16}, {4, 4, 4, 4}},
                    {{"zbv", 4, 16}, {4, 4, 4, 4}},
                    {{"v_half", 4, 16}, {3, 3, 3, 3}},
                    {{"dualpipev", 4, 16}, {4.5, 4.5, 4.5, 4.5}},
                    {{"v_min", 8, 32}, {3, 4, 4, 3, 4, 4, 3, 4}}};
  for (const auto& row : rows) {
    const Schedule schedule = make_schedule(row.request);
    const Simulation result = simulate(schedule, even_costs(schedule));
    for (size_t rank = 0; rank < row.peaks.size(); ++rank)
      EXPECT_DOUBLE_EQ(result.ranks[rank].peak, row.peaks[rank]) << row.request.name << ", rank " << rank;
  }
}

TEST(Schedules, ValuesOfUnevenCosts) {
  constexpr std::array<std::array<double, 3>, 6> kCosts = {
      {{1, 1.5, 0.5}, {1, 1, 0.7}, {1, 1.2, 1}, {1, 1, 1.3}, {1, 0.8, 1.2}, {2, 3, 1}}};
  struct {
    ScheduleRequest request;
    std::array<std::array<double, 2>, 6> makespans;  // 4 ranks with 16 micro-batches, 8 with 32
  } const rows[] = {
      {{"gpipe"}, {{{57, 117}, {51.3, 105.3}, {60.8, 124.8}, {62.7, 128.7}, {57, 117}, {114, 234}}}},
      {{"1f1b"}, {{{57, 117}, {51.3, 105.3}, {60.8, 124.8}, {62.7, 128.7}, {57, 117}, {114, 234}}}},
      {{"interleaved", 1, 1, 2},
       {{{52.5, 106.5}, {47.25, 95.85}, {56, 113.6}, {57.75, 117.15}, {52.5, 106.5}, {105, 213}}}},
      {{"interleaved", 1, 1, 4},
       {{{50.25, 101.25},
         {45.225, 91.125},
         {53.6, 108},
         {55.275, 111.375},
         {50.25, 101.25},
         {100.5, 202.5}}}},
      {{"zb_h1"}, {{{54, 110}, {47.1, 95.5}, {54.8, 110.8}, {55.8, 112.6}, {51, 103}, {108, 220}}}},
      {{"zbv"}, {{{51, 103}, {44.7, 89.9}, {53, 106.6}, {54.6, 110}, {49.7, 100.1}, {102, 206}}}},
      {{"v_half"}, {{{60, 122}, {49.5, 100}, {58.1, 117.5}, {58.5, 118}, {53.1, 107.1}, {120, 244}}}},
      {{"v_min"},
       {{{77.75, 159.75}, {53.35, 109.35}, {63.3, 129.7}, {58, 118.5}, {52.8, 108.1}, {155.5, 319.5}}}},
      {{"dualpipev"},
       {{{52.75, 107.75}, {46.65, 94.45}, {54.5, 110.3}, {55.8, 112.6}, {51, 103}, {105.5, 215.5}}}},
  };
  for (const auto& row : rows) {
    for (const int32_t ranks : {4, 8}) {
      const Schedule schedule = sized(row.request, ranks, 4 * ranks);
      for (size_t i = 0; i < kCosts.size(); ++i) {
        const StageCost cost{kCosts[i][0], kCosts[i][1], kCosts[i][2]};
        EXPECT_NEAR(simulate(schedule, even_costs(schedule, cost)).makespan,
                    row.makespans[i][ranks == 4 ? 0 : 1], 1e-9)
            << row.request.name << ", " << ranks << " ranks, costs " << i;
      }
    }
  }
}

TEST(Schedules, OverlappedPairs) {
  const std::array<std::array<double, 3>, 5> values = {
      {{4, 8, 24.5}, {4, 16, 44.5}, {8, 16, 49.5}, {8, 32, 89.5}, {16, 64, 179.5}}};
  for (const auto& [ranks, micro_batches, makespan] : values) {
    const Schedule schedule =
        make_schedule({"dualpipev", static_cast<int32_t>(ranks), static_cast<int32_t>(micro_batches)});
    Costs costs = even_costs(schedule);
    costs.pair = 2.5 / 3;
    EXPECT_NEAR(simulate(schedule, costs).makespan, makespan, 1e-9) << ranks << " ranks";
  }
}

std::string refusal(const ScheduleRequest& request) {
  try {
    make_schedule(request);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "made";
}

TEST(Schedules, ErrorsNameTheNearest) {
  EXPECT_NE(refusal({"interleaved", 4, 10, 2}).find("for 8 or 12 micro-batches"), std::string::npos);
  EXPECT_NE(refusal({"interleaved_zb", 4, 3, 2}).find("for 4 micro-batches"), std::string::npos);
  EXPECT_NE(refusal({"interleaved", 4, 8}).find("or 1f1b with 1"), std::string::npos);
  EXPECT_NE(refusal({"dualpipev", 4, 7}).find("ranks to at most 3"), std::string::npos);
  EXPECT_NE(refusal({"zbv", 4, 8, 3}).find("has 2 per rank"), std::string::npos);
  EXPECT_NE(refusal({"1fb1", 4, 8}).find("did you mean 1f1b?"), std::string::npos);
  EXPECT_NE(refusal({"1f1b", 4, 0}).find("at least 1"), std::string::npos);
  EXPECT_NE(refusal({"1f1b", 1 << 20, 1 << 20}).find("more than"), std::string::npos);
  EXPECT_EQ(refusal({"zbv", 4, 8, 2}), "made");
}

}  // namespace
}  // namespace strata::parallel
