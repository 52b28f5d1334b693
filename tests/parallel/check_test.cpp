// The errors that checks find, and the simulator against a direct implementation of its rules.
#include "parallel/check.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/error.h"
#include "parallel/messages.h"
#include "parallel/schedules.h"
#include "parallel/simulate.h"

namespace strata::parallel {
namespace {

using enum ActionKind;

bool mentions(const std::vector<std::string>& errors, const std::string& text) {
  return std::any_of(errors.begin(), errors.end(),
                     [&](const std::string& error) { return error.find(text) != std::string::npos; });
}

TEST(Check, NamesActionAndRank) {
  const Schedule sound = make_schedule({"zb_h1", 2, 3});
  Schedule schedule = sound;
  schedule.ranks[1].pop_back();  // W2@1
  EXPECT_EQ(errors_of(schedule), std::vector<std::string>{"rank 1: W2@1 is missing"});

  schedule = sound;
  schedule.ranks[0].push_back({kForward, 1, 0});
  EXPECT_EQ(
      errors_of(schedule),
      std::vector<std::string>{"rank 0, action 9 (F1@0): F1@0 was already done by rank 0, action 1 (F1@0)"});

  schedule = sound;
  schedule.ranks[0].push_back({kForward, 1, 1});
  EXPECT_TRUE(mentions(errors_of(schedule), "rank 0, action 9 (F1@1): stage 1 is on rank 1"));

  schedule = sound;
  schedule.ranks[0][0].micro_batch = 3;
  EXPECT_TRUE(mentions(errors_of(schedule), "F3@0 is out of range: the schedule has micro-batches 0 to 2"));
  EXPECT_TRUE(mentions(errors_of(schedule), "rank 0: F0@0 is missing"));

  schedule = sound;
  std::swap(schedule.ranks[1][0], schedule.ranks[1][1]);  // I0 before F0
  EXPECT_EQ(errors_of(schedule),
            std::vector<std::string>{"rank 1, action 0 (I0@1) needs F0@1, which is later: "
                                     "rank 1, action 1 (F0@1)"});

  schedule = sound;
  std::swap(schedule.ranks[0][2], schedule.ranks[0][3]);  // W0 before I0
  EXPECT_EQ(errors_of(schedule),
            std::vector<std::string>{"rank 0, action 2 (W0@0) needs I0@0, which is later: "
                                     "rank 0, action 3 (I0@0)"});

  schedule = sound;
  schedule.rank_of_stage[1] = 2;
  EXPECT_EQ(errors_of(schedule), std::vector<std::string>{"stage 1 is on rank 2: expected a rank below 2"});
}

TEST(Check, ReportsACycleOfWaits) {
  Schedule schedule = make_schedule({"1f1b", 2, 2});
  // Rank 0 needs the gradient of micro-batch 0 before it sends micro-batch 1, which rank 1 reads first.
  schedule.ranks[0] = {{kForward, 0, 0}, {kBackward, 0, 0}, {kForward, 1, 0}, {kBackward, 1, 0}};
  schedule.ranks[1] = {{kForward, 0, 1}, {kForward, 1, 1}, {kBackward, 0, 1}, {kBackward, 1, 1}};
  EXPECT_EQ(errors_of(schedule),
            std::vector<std::string>{"deadlock: rank 0, action 1 (B0@0) waits for rank 1, action 2 (B0@1); "
                                     "rank 1, action 1 (F1@1) waits for rank 0, action 2 (F1@0)"});
  try {
    require_sound(schedule, "parallel.schedule");
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_EQ(
        std::string(error.what())
            .find("[parallel.schedule] schedule 1f1b (2 stages on 2 ranks, 2 micro-batches) cannot run"),
        0U);
  }
  // F and B of one micro-batch cannot form a pair.
  schedule = {"pair", 1, 1, {0}, {{{kForwardBackward, 0, 0, 0, 0}}}};
  EXPECT_TRUE(mentions(errors_of(schedule), "needs F0@0, which is part of it"));
  // Nor can they at the last of two stages.
  schedule = {"pair", 2, 1, {0, 0}, {{{kForward, 0, 0}, {kForwardBackward, 0, 1, 0, 1}, {kBackward, 0, 0}}}};
  EXPECT_FALSE(errors_of(schedule).empty());
}

// Random edits that remove required actions or add others.
TEST(Check, FindsEveryDropCopyAndMove) {
  std::mt19937 random(7);
  const auto below = [&](size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random); };
  for (const ScheduleKind& kind : schedule_kinds()) {
    for (int trial = 0; trial < 200; ++trial) {
      const auto ranks = static_cast<int32_t>(2 + below(4));
      const auto micro_batches = static_cast<int32_t>(ranks * static_cast<int32_t>(2 + below(2)));
      Schedule schedule =
          make_schedule({std::string(kind.name), ranks, micro_batches, kind.chunks == 0 ? 2 : 1});
      auto& from = schedule.ranks[below(schedule.ranks.size())];
      const auto at = static_cast<std::ptrdiff_t>(below(from.size()));
      const Action action = from[static_cast<size_t>(at)];
      auto& to = schedule.ranks[below(schedule.ranks.size())];
      const size_t what = below(4);
      if (what == 3) {  // another micro-batch or stage
        Action& changed = from[static_cast<size_t>(at)];
        (below(2) ? changed.stage : changed.micro_batch) += 1;
      } else {
        if (what != 1) from.erase(from.begin() + at);  // drop
        if (what == 2 && &to == &from) continue;       // no move
        if (what != 0)
          to.insert(to.begin() + static_cast<std::ptrdiff_t>(below(to.size() + 1)), action);  // copy
      }
      EXPECT_FALSE(errors_of(schedule).empty()) << kind.name << ", " << str(action) << ", " << what;
    }
  }
}

using Cell = std::tuple<char, int32_t, int32_t>;  // 'F', 'I', 'W' of a micro-batch and a stage

struct PlainTimes {
  bool ends = true;
  double makespan = 0;
};

// Applies the rules directly: visits all ranks repeatedly, until none can continue.
PlainTimes plain_simulation(const Schedule& schedule, const Costs& costs) {
  std::map<Cell, std::pair<double, int32_t>> done;  // when, and on which rank
  std::vector<size_t> next(schedule.ranks.size(), 0);
  std::vector<double> free(schedule.ranks.size(), 0);
  PlainTimes result;
  for (bool moves = true; moves;) {
    moves = false;
    for (int32_t rank = 0; rank < schedule.rank_count(); ++rank) {
      const auto r = static_cast<size_t>(rank);
      if (next[r] == schedule.ranks[r].size()) continue;
      const Action& a = schedule.ranks[r][next[r]];
      double start = free[r];
      bool can_run = true;
      const auto need = [&](const Cell& cell) {
        const auto found = done.find(cell);
        if (found == done.end()) {
          can_run = false;
        } else {
          start = std::max(start, found->second.first + (found->second.second == rank ? 0 : costs.message));
        }
      };
      const auto need_backward = [&](int32_t m, int32_t s) {
        need({'F', m, s});
        if (s + 1 < schedule.stages) need({'I', m, s + 1});
      };
      const StageCost& cost = costs.stages[static_cast<size_t>(a.stage)];
      const bool is_pair = a.kind == kForwardBackward;
      if ((a.kind == kForward || is_pair) && a.stage > 0) need({'F', a.micro_batch, a.stage - 1});
      if (a.kind == kInputGrad || a.kind == kBackward) need_backward(a.micro_batch, a.stage);
      if (is_pair) need_backward(a.backward_micro_batch, a.backward_stage);
      if (a.kind == kWeightGrad) need({'I', a.micro_batch, a.stage});
      if (!can_run) continue;
      double time = 0;
      if (a.kind == kForward || is_pair) time += cost.forward;
      if (a.kind == kInputGrad || a.kind == kBackward) time += cost.input_grad;
      if (a.kind == kWeightGrad || a.kind == kBackward) time += cost.weight_grad;
      if (is_pair) {
        const StageCost& back = costs.stages[static_cast<size_t>(a.backward_stage)];
        time = costs.pair * (time + back.input_grad + back.weight_grad);
      }
      free[r] = start + time;
      result.makespan = std::max(result.makespan, free[r]);
      if (a.kind == kForward || is_pair) done[{'F', a.micro_batch, a.stage}] = {free[r], rank};
      if (a.kind == kInputGrad || a.kind == kBackward) done[{'I', a.micro_batch, a.stage}] = {free[r], rank};
      if (is_pair) done[{'I', a.backward_micro_batch, a.backward_stage}] = {free[r], rank};
      ++next[r];
      moves = true;
    }
  }
  for (size_t r = 0; r < next.size(); ++r) result.ends = result.ends && next[r] == schedule.ranks[r].size();
  return result;
}

Costs random_costs(const Schedule& schedule, std::mt19937& random) {
  std::uniform_real_distribution<double> between(0.5, 2);
  Costs costs;
  for (int32_t stage = 0; stage < schedule.stages; ++stage)
    costs.stages.push_back({between(random), between(random), between(random), 1});
  costs.message = between(random) / 4;
  costs.pair = 0.9;
  return costs;
}

TEST(Simulate, MatchesThePlainRules) {
  std::mt19937 random(11);
  for (const ScheduleKind& kind : schedule_kinds()) {
    for (const int32_t ranks : {1, 2, 3, 5}) {
      for (const int32_t micro_batches : {2 * ranks, 3 * ranks}) {
        const Schedule schedule =
            make_schedule({std::string(kind.name), ranks, micro_batches, kind.chunks == 0 ? 2 : 1});
        const Costs costs = random_costs(schedule, random);
        const Simulation result = simulate(schedule, costs);
        EXPECT_NEAR(result.makespan, plain_simulation(schedule, costs).makespan, 1e-9) << kind.name;
        EXPECT_GE(result.makespan, critical_path(schedule, costs) * (1 - 1e-9)) << kind.name;
      }
    }
  }
}

// Swapping actions leaves a schedule complete. It is rejected if and only if the plain rules do not run it to
// its end.
TEST(Check, RejectsSchedulesThatDoNotFinish) {
  std::mt19937 random(13);
  const auto below = [&](size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random); };
  int refused = 0, taken = 0;
  for (const ScheduleKind& kind : schedule_kinds()) {
    for (int trial = 0; trial < 300; ++trial) {
      const auto ranks = static_cast<int32_t>(2 + below(3));
      Schedule schedule = make_schedule({std::string(kind.name), ranks, 2 * ranks, kind.chunks == 0 ? 2 : 1});
      for (size_t swaps = 1 + below(3); swaps-- > 0;) {
        auto& actions = schedule.ranks[below(schedule.ranks.size())];
        std::swap(actions[below(actions.size())], actions[below(actions.size())]);
      }
      const bool is_sound = errors_of(schedule).empty();
      const Costs costs = even_costs(schedule);
      EXPECT_EQ(is_sound, plain_simulation(schedule, costs).ends) << kind.name << ", trial " << trial;
      if (is_sound) {
        EXPECT_GE(simulate(schedule, costs).makespan, critical_path(schedule, costs) * (1 - 1e-9));
      }
      ++(is_sound ? taken : refused);
    }
  }
  EXPECT_GT(refused, 500);
  EXPECT_GT(taken, 100);
}

TEST(Simulate, RequiresASoundSchedule) {
  Schedule schedule = make_schedule({"1f1b", 2, 2});
  EXPECT_THROW(simulate(schedule, {}), InternalError);
  schedule.ranks[0].push_back(schedule.ranks[0].front());
  EXPECT_THROW(simulate(schedule, even_costs(schedule)), InternalError);
}

// A file may have any placement and order: the further apart ranks run, the more buffers messages need.
TEST(Messages, BuffersFollowTheOrder) {
  Schedule schedule{"far", 2, 4, {0, 1}, {{}, {}}};
  for (int32_t i = 0; i < 4; ++i) schedule.ranks[0].push_back({kForward, i, 0});
  for (int32_t i = 0; i < 4; ++i) schedule.ranks[0].push_back({kBackward, i, 0});
  // The last micro-batch first: its message is the fourth, so all four are received before it.
  for (const int32_t i : {3, 0, 1, 2}) schedule.ranks[1].push_back({kForward, i, 1});
  for (int32_t i = 0; i < 4; ++i) schedule.ranks[1].push_back({kBackward, i, 1});
  ASSERT_TRUE(errors_of(schedule).empty());
  const auto messages = messages_of(schedule);
  EXPECT_EQ(receive_buffers_of(messages, 1), 4);
  EXPECT_EQ(receive_buffers_of(messages, 0), 1);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(messages[i].received_before, 0);
  EXPECT_EQ(send_buffers_of(schedule), 1);
}

}  // namespace
}  // namespace strata::parallel
