#include "program/waits.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace strata::program {
namespace {

using graph::Queue;

constexpr Queue kCompute = Queue::kCompute, kCommunication = Queue::kCommunication;

std::vector<std::vector<int32_t>> waits_of(const std::vector<Access>& list) {
  const Waits waits = find_waits(list);
  std::vector<std::vector<int32_t>> out;
  for (size_t i = 0; i < list.size(); ++i) out.emplace_back(waits.of(i).begin(), waits.of(i).end());
  return out;
}
using Lists = std::vector<std::vector<int32_t>>;

TEST(Waits, NoneOnOneQueue) {
  EXPECT_EQ(waits_of({{kCompute, {}, {{0, 8}}}, {kCompute, {{0, 8}}, {{0, 8}}}, {kCompute, {{0, 8}}, {}}}),
            (Lists{{}, {}, {}}));
}

TEST(Waits, ForReadsAndWritesOfTheSameBytes) {
  // Read after write, write after read, write after write.
  EXPECT_EQ(waits_of({{kCompute, {}, {{0, 8}}}, {kCommunication, {{4, 6}}, {}}}), (Lists{{}, {0}}));
  EXPECT_EQ(waits_of({{kCommunication, {{0, 8}}, {}}, {kCompute, {}, {{7, 9}}}}), (Lists{{}, {0}}));
  EXPECT_EQ(waits_of({{kCommunication, {}, {{0, 8}}}, {kCompute, {}, {{0, 1}}}}), (Lists{{}, {0}}));
  // None for two readers or for adjacent ranges.
  EXPECT_EQ(
      waits_of({{kCommunication, {{0, 8}}, {}}, {kCompute, {{0, 8}}, {}}, {kCommunication, {}, {{8, 9}}}}),
      (Lists{{}, {}, {}}));
}

TEST(Waits, OnlyForTheLatestOnAQueue) {
  EXPECT_EQ(waits_of({{kCompute, {}, {{0, 8}}},
                      {kCompute, {}, {{8, 16}}},
                      {kCommunication, {{0, 16}}, {}},
                      {kCommunication, {{8, 16}}, {}}}),
            (Lists{{}, {}, {1}, {}}));
}

TEST(Waits, NotIfAnotherWaitImpliesThem) {
  // The last one waits for the communication, which has waited for the first computation.
  EXPECT_EQ(waits_of({{kCompute, {}, {{0, 8}}},
                      {kCommunication, {{0, 8}}, {{8, 16}}},
                      {kCompute, {{8, 16}}, {{16, 24}}},
                      {kCommunication, {{0, 24}}, {}},
                      {kCompute, {}, {{0, 16}}}}),
            (Lists{{}, {0}, {1}, {2}, {3}}));
}

TEST(Waits, RecordCompletedInstructions) {
  const Waits waits = find_waits(std::vector<Access>{{kCompute, {}, {{0, 8}}},
                                                     {kCommunication, {{0, 8}}, {{8, 16}}},
                                                     {kCompute, {}, {{32, 40}}},
                                                     {kCompute, {{8, 16}}, {}}});
  using Done = std::array<int32_t, graph::kQueues>;
  EXPECT_EQ(waits.done[2], (Done{0, -1})) << "the communication may still run";
  EXPECT_EQ(waits.done[3], (Done{2, 1}));
}

std::vector<Access> random_list(std::mt19937_64& random) {
  std::vector<Access> list(2 + random() % 40);
  const auto range = [&] {
    const auto begin = static_cast<int64_t>(random() % 24);
    return ByteRange{begin, begin + 1 + static_cast<int64_t>(random() % 6)};
  };
  for (Access& access : list) {
    access.queue = static_cast<Queue>(random() % graph::kQueues);
    for (uint64_t i = random() % 3; i > 0; --i) access.reads.push_back(range());
    for (uint64_t i = random() % 3; i > 0; --i) access.writes.push_back(range());
  }
  return list;
}

// Every instruction writes numbers that depend on its index and on all that it reads.
void execute(const Access& access, size_t instruction, std::vector<uint64_t>& memory) {
  uint64_t number = instruction + 1;
  for (const ByteRange& range : access.reads) {
    for (int64_t at = range.begin; at < range.end; ++at)
      number = number * 0x9e3779b97f4a7c15u + memory[static_cast<size_t>(at)];
  }
  for (const ByteRange& range : access.writes) {
    for (int64_t at = range.begin; at < range.end; ++at)
      memory[static_cast<size_t>(at)] = number + static_cast<uint64_t>(at);
  }
}

TEST(Waits, AllowOnlyEquivalentOrders) {
  std::mt19937_64 random(3);
  int reordered = 0;
  for (int round = 0; round < 400; ++round) {
    const std::vector<Access> list = random_list(random);
    const Waits waits = find_waits(list);
    std::vector<uint64_t> wanted(32, 0);
    for (size_t i = 0; i < list.size(); ++i) execute(list[i], i, wanted);
    for (int order = 0; order < 8; ++order) {
      std::vector<uint64_t> memory(32, 0);
      std::vector<bool> done(list.size(), false);
      std::array<std::vector<size_t>, graph::kQueues> queues;  // remaining instructions, the next one last
      for (size_t i = list.size(); i-- > 0;) queues[static_cast<size_t>(list[i].queue)].push_back(i);
      size_t last = 0;
      for (size_t count = 0; count < list.size();) {
        auto& queue = queues[random() % queues.size()];
        if (queue.empty()) continue;
        const size_t i = queue.back();
        const auto on = waits.of(i);
        if (std::any_of(on.begin(), on.end(),
                        [&](int32_t other) { return !done[static_cast<size_t>(other)]; }))
          continue;
        queue.pop_back();
        execute(list[i], i, memory);
        done[i] = true;
        ++count;
        reordered += i < last;
        last = i;
      }
      ASSERT_EQ(memory, wanted) << "round " << round;
    }
  }
  EXPECT_GT(reordered, 1000) << "the queues must run concurrently";
}

// No wait is implied by the others.
TEST(Waits, AreAllNeeded) {
  std::mt19937_64 random(5);
  for (int round = 0; round < 100; ++round) {
    const std::vector<Access> list = random_list(random);
    const auto waits = waits_of(list);
    // Whether `to` runs after `from` if `left` does not wait for `out`.
    const auto follows_without = [&](size_t from, size_t to, size_t left, int32_t out) -> bool {
      std::vector<bool> follows(list.size(), false);
      follows[from] = true;
      for (size_t i = from + 1; i <= to; ++i) {
        for (size_t j = from; j < i; ++j) {
          const auto other = static_cast<int32_t>(j);
          const bool waited = std::find(waits[i].begin(), waits[i].end(), other) != waits[i].end() &&
                              (i != left || other != out);
          if (follows[j] && (waited || list[i].queue == list[j].queue)) follows[i] = true;
        }
      }
      return follows[to];
    };
    for (size_t i = 0; i < list.size(); ++i) {
      for (const int32_t other : waits[i])
        ASSERT_FALSE(follows_without(static_cast<size_t>(other), i, i, other)) << i << " waits for " << other;
    }
  }
}

}  // namespace
}  // namespace strata::program
