// Every schedule, for all supported sizes up to 16 ranks and 64 micro-batches.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "parallel/check.h"
#include "parallel/messages.h"
#include "parallel/schedules.h"
#include "parallel/simulate.h"

namespace strata::parallel {
namespace {

constexpr int32_t kMostRanks = 16, kMostMicroBatches = 64;
constexpr double kNear = 1e-9;

bool allows(const ScheduleKind& kind, int32_t ranks, int32_t micro_batches) {
  if (kind.name.starts_with("interleaved")) return micro_batches % ranks == 0;
  return kind.name != "dualpipev" || micro_batches >= 2 * ranks;
}

template <typename Visit>
void for_all_schedules(Visit visit) {
  for (const ScheduleKind& kind : schedule_kinds()) {
    const int32_t least_chunks = kind.chunks == 0 ? 2 : 1, most_chunks = kind.chunks == 0 ? 4 : 1;
    for (int32_t chunks = least_chunks; chunks <= most_chunks; ++chunks) {
      for (int32_t ranks = 1; ranks <= kMostRanks; ++ranks) {
        for (int32_t micro_batches = 1; micro_batches <= kMostMicroBatches; ++micro_batches) {
          if (!allows(kind, ranks, micro_batches)) continue;
          const Schedule schedule = make_schedule({std::string(kind.name), ranks, micro_batches, chunks});
          SCOPED_TRACE(fmt::format("{}, {} stages, {} ranks, {} micro-batches", kind.name, schedule.stages,
                                   ranks, micro_batches));
          visit(schedule);
          if (testing::Test::HasFailure()) return;
        }
      }
    }
  }
}

TEST(Sweep, EveryScheduleIsSound) {
  int count = 0;
  for_all_schedules([&](const Schedule& schedule) {
    ++count;
    EXPECT_EQ(errors_of(schedule), std::vector<std::string>());
    EXPECT_TRUE(adds_in_order(schedule));
  });
  EXPECT_GT(count, 6000);
}

constexpr StageCost kUneven[] = {{1, 1.5, 0.5}, {1, 0.8, 1.2}, {2, 3, 1}};

TEST(Sweep, NoStepIsShorterThanItsCriticalPath) {
  for_all_schedules([](const Schedule& schedule) {
    Costs costs = even_costs(schedule, kUneven[schedule.micro_batches % 3]);
    // Uneven stages, and messages that take time.
    for (size_t stage = 0; stage < costs.stages.size(); ++stage)
      costs.stages[stage].forward *= 1 + 0.1 * static_cast<double>(stage % 3);
    costs.message = 0.25;
    costs.pair = 0.9;
    EXPECT_GE(simulate(schedule, costs).makespan, critical_path(schedule, costs) * (1 - kNear));
  });
}

int32_t chunks_of(const Schedule& schedule) {
  return schedule.stages / schedule.rank_count();
}

double backward_of(const StageCost& cost) {
  return cost.input_grad + cost.weight_grad;
}

// The bubble of every rank, or a negative number if no formula holds. `cost` is that of a rank's whole share.
double bubble_formula(const Schedule& schedule, const StageCost& cost) {
  const double others = schedule.rank_count() - 1, chunks = chunks_of(schedule);
  const double F = cost.forward, I = cost.input_grad, W = cost.weight_grad;
  const bool is_long = schedule.micro_batches >= 2 * schedule.rank_count();
  if (schedule.name == "gpipe" || schedule.name == "1f1b" || schedule.name == "interleaved")
    return others * (F + I + W) / chunks;
  if (schedule.name == "interleaved_zb" || (schedule.name == "zb_h1" && is_long))
    return others * std::max({F + I - W, F, I}) / chunks;
  if (schedule.name == "zbv" && is_long && F == I && F / 2 <= W && W <= F) return others * F / 2;
  if (schedule.name == "dualpipev" && F == I && W <= F) return others * (F + 2 * I - W) / 2;
  return -1;
}

TEST(Sweep, BubblesMatchTheFormulas) {
  std::map<std::string, int> held;
  const StageCost costs[] = {{1, 1, 1}, {1, 1, 0.7}, {1, 1, 0.5}, {1, 1.5, 0.5}, {1, 0.8, 1.2}, {2, 3, 1}};
  for_all_schedules([&](const Schedule& schedule) {
    for (const StageCost& cost : costs) {
      const double expected = bubble_formula(schedule, cost);
      if (expected < 0) continue;
      ++held[schedule.name];
      const Simulation result = simulate(schedule, even_costs(schedule, cost));
      double farthest = 0;  // of all ranks
      for (int32_t rank = 0; rank < schedule.rank_count(); ++rank)
        farthest = std::max(farthest, std::abs(result.bubble(rank) - expected));
      EXPECT_LE(farthest, 1e-6);
      EXPECT_NEAR(result.makespan, schedule.micro_batches * (cost.forward + backward_of(cost)) + expected,
                  1e-6);
    }
  });
  EXPECT_EQ(held.size(), 7U);
  for (const auto& [name, times] : held) EXPECT_GT(times, 100) << name;
}

TEST(Sweep, ShortStepsOfZeroBubbleSchedules) {
  for_all_schedules([](const Schedule& schedule) {
    if (schedule.name != "zb_h1" && schedule.name != "zbv") return;
    const double ranks = schedule.rank_count(), chunks = chunks_of(schedule);
    const double expected = std::max((ranks - 1) / chunks, 2 * ranks - 1 - schedule.micro_batches);
    EXPECT_NEAR(simulate(schedule, even_costs(schedule)).makespan, 3 * schedule.micro_batches + expected,
                1e-6);
  });
}

// The peak of a rank, in units of a rank's share of the model; negative if no formula is known.
double peak_formula(const Schedule& schedule, int32_t rank) {
  const int32_t ranks = schedule.rank_count(), micro_batches = schedule.micro_batches;
  const double chunks = chunks_of(schedule);
  const bool is_long = micro_batches >= 2 * ranks;
  if (schedule.name == "gpipe") return micro_batches;
  if (schedule.name == "1f1b") return std::min(ranks - rank, micro_batches);
  if (schedule.name == "interleaved" && is_long) return ranks + (ranks - 1 - 2 * rank) / chunks;
  if (schedule.name == "zb_h1") return std::min(ranks, micro_batches);
  if (schedule.name == "interleaved_zb") return ranks;
  if (schedule.name == "zbv" && is_long) return ranks;
  const int32_t half = ranks / 2;
  if (schedule.name == "v_half" && is_long && ranks > 1) return half + 1;
  if (schedule.name == "dualpipev") return ranks + 0.5;
  return -1;
}

TEST(Sweep, PeaksMatchTheFormulas) {
  for_all_schedules([&](const Schedule& schedule) {
    const Simulation result = simulate(schedule, even_costs(schedule));
    const std::vector<LiveCounts> counts = live_counts(schedule);
    const double chunks = chunks_of(schedule);
    for (int32_t rank = 0; rank < schedule.rank_count(); ++rank) {
      const auto at = static_cast<size_t>(rank);
      if (const double expected = peak_formula(schedule, rank); expected >= 0) {
        EXPECT_NEAR(result.ranks[at].peak, expected, kNear) << "rank " << rank;
      }
      EXPECT_NEAR(result.ranks[at].peak * chunks, counts[at].forward_to_weight_grad, 1e-6);
      EXPECT_LE(counts[at].forward_to_input_grad, counts[at].forward_to_weight_grad);
    }
    if (schedule.name == "v_min") {
      EXPECT_LE(result.peak(), (schedule.rank_count() + 1) / 3 + 1);
    }
  });
}

// Both ranks must agree on the order of the messages between them.
TEST(Sweep, ReceiversTakeMessagesInTheOrderOfSending) {
  for_all_schedules([](const Schedule& schedule) {
    const std::vector<Message> messages = messages_of(schedule);
    int64_t boundaries = 0;
    for (size_t s = 0; s + 1 < static_cast<size_t>(schedule.stages); ++s)
      boundaries += schedule.rank_of_stage[s] != schedule.rank_of_stage[s + 1];
    EXPECT_EQ(std::ssize(messages), boundaries * 2 * schedule.micro_batches);
    std::map<std::pair<int32_t, int32_t>, std::vector<const Message*>> channels;
    for (const Message& message : messages)
      channels[{message.from_rank, message.to_rank}].push_back(&message);
    for (const auto& [pair, channel] : channels) {
      int32_t later = channel.back()->read_by;
      for (size_t i = channel.size(); i-- > 0;) {
        later = std::min(later, channel[i]->read_by);
        ASSERT_EQ(channel[i]->received_before, later);
        if (i > 0) {
          ASSERT_LE(channel[i - 1]->sent_after, channel[i]->sent_after);
        }
      }
    }
    for (int32_t rank = 0; rank < schedule.rank_count(); ++rank)
      EXPECT_LE(receive_buffers_of(messages, rank), 2) << "rank " << rank;
  });
}

TEST(Sweep, SendBuffers) {
  for_all_schedules([](const Schedule& schedule) {
    // Interleaved W actions delay more messages from the last rank to the first.
    const bool is_wide = schedule.name == "interleaved_zb";
    EXPECT_LE(send_buffers_of(schedule), is_wide ? schedule.rank_count() / 2 + 1 : 2);
  });
}

}  // namespace
}  // namespace strata::parallel
