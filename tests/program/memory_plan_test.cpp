#include "program/memory_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "tensor/arena.h"

namespace strata::program {
namespace {

int64_t alive_at(const std::vector<Lifetime>& lifetimes, int32_t at) {
  int64_t bytes = 0;
  for (const Lifetime& life : lifetimes) {
    if (life.first <= at && at <= life.last) bytes += align_up(life.bytes, kBufferAlignment);
  }
  return bytes;
}

void expect_sound(const std::vector<Lifetime>& lifetimes, const Layout& layout) {
  ASSERT_EQ(layout.offsets.size(), lifetimes.size());
  int64_t end = 0;
  int32_t last = 0;
  for (size_t i = 0; i < lifetimes.size(); ++i) {
    const Lifetime& a = lifetimes[i];
    last = std::max(last, a.last);
    ASSERT_GE(layout.offsets[i], 0);
    ASSERT_EQ(layout.offsets[i] % kBufferAlignment, 0);
    if (a.bytes > 0) end = std::max(end, layout.offsets[i] + align_up(a.bytes, kBufferAlignment));
    for (size_t j = 0; j < i; ++j) {
      const Lifetime& b = lifetimes[j];
      if (a.bytes == 0 || b.bytes == 0 || a.last < b.first || b.last < a.first) continue;
      ASSERT_TRUE(layout.offsets[i] + a.bytes <= layout.offsets[j] ||
                  layout.offsets[j] + b.bytes <= layout.offsets[i])
          << "buffers " << j << " and " << i << " are live at the same time and overlap";
    }
  }
  EXPECT_EQ(layout.bytes, end) << "the peak is the end of the last buffer";
  int64_t most = 0;
  for (int32_t at = 0; at <= last; ++at) most = std::max(most, alive_at(lifetimes, at));
  EXPECT_EQ(layout.alive_at_peak, most);
  if (most > 0) {
    EXPECT_EQ(alive_at(lifetimes, layout.peak_at), most);
  }
  EXPECT_GE(layout.bytes, most);
}

// The expected result of plan_memory, found by comparing each buffer with all earlier ones: the smaller of a
// best-fit placement with the largest buffer first and one in the given order.
Layout plainly_placed(const std::vector<Lifetime>& lifetimes, const std::vector<size_t>& order) {
  Layout layout;
  layout.offsets.assign(lifetimes.size(), 0);
  std::vector<size_t> done;
  for (const size_t i : order) {
    const Lifetime& life = lifetimes[i];
    const int64_t bytes = align_up(life.bytes, kBufferAlignment);
    if (bytes == 0) continue;
    std::vector<std::pair<int64_t, int64_t>> busy;
    for (const size_t j : done) {
      if (lifetimes[j].first <= life.last && life.first <= lifetimes[j].last)
        busy.emplace_back(layout.offsets[j],
                          layout.offsets[j] + align_up(lifetimes[j].bytes, kBufferAlignment));
    }
    std::sort(busy.begin(), busy.end());
    int64_t at = 0, best = -1, best_gap = 0;
    for (const auto& [begin, end] : busy) {
      const int64_t gap = begin - at;
      if (gap >= bytes && (best < 0 || gap < best_gap)) {
        best = at;
        best_gap = gap;
      }
      at = std::max(at, end);
    }
    layout.offsets[i] = best >= 0 ? best : at;
    layout.bytes = std::max(layout.bytes, layout.offsets[i] + bytes);
    done.push_back(i);
  }
  return layout;
}

Layout plainly_planned(const std::vector<Lifetime>& lifetimes) {
  std::vector<size_t> order(lifetimes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  Layout first_come = plainly_placed(lifetimes, order);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return lifetimes[a].bytes > lifetimes[b].bytes; });
  Layout largest_first = plainly_placed(lifetimes, order);
  return largest_first.bytes <= first_come.bytes ? largest_first : first_come;
}

std::vector<Lifetime> random_lifetimes(std::mt19937_64& random, int count, int span) {
  std::vector<Lifetime> lifetimes;
  for (int i = 0; i < count; ++i) {
    const auto a = static_cast<int32_t>(random() % static_cast<uint64_t>(span));
    const auto b = static_cast<int32_t>(random() % static_cast<uint64_t>(span));
    // Sizes of very different scales, some empty.
    const auto bytes = static_cast<int64_t>(random() % (uint64_t{1} << (random() % 20)));
    lifetimes.push_back({bytes, std::min(a, b), std::max(a, b)});
  }
  return lifetimes;
}

// The lifetimes of a step: in each layer some buffers live until backward, some are short, some are
// recomputed.
std::vector<Lifetime> layered_lifetimes(int32_t layers) {
  constexpr int32_t kForward = 6, kBackward = 9;
  const int32_t end = layers * (kForward + kBackward);
  std::vector<Lifetime> lifetimes;
  for (int32_t layer = 0; layer < layers; ++layer) {
    const int32_t at = layer * kForward;
    const int32_t back = end - (layer + 1) * kBackward;
    lifetimes.push_back({8192, at, back + kBackward - 1});
    lifetimes.push_back({24576, at + 1, back + 6});
    lifetimes.push_back({192, at + 1, back + 7});
    lifetimes.push_back({57344, at + 3, at + 4});
    lifetimes.push_back({28672, at + 4, back + 2});
    lifetimes.push_back({8192, at + 5, at + 6});
    lifetimes.push_back({57344, back + 1, back + 3});
    lifetimes.push_back({8192, back + 3, back + 8});
    lifetimes.push_back({24576, back + 6, back + 8});
  }
  return lifetimes;
}

TEST(MemoryPlan, NoBuffersNeedNoMemory) {
  EXPECT_EQ(plan_memory({}).bytes, 0);
  const std::vector<Lifetime> empty{{0, 0, 3}, {0, 1, 1}};
  expect_sound(empty, plan_memory(empty));
}

TEST(MemoryPlan, BuffersWithDisjointLifetimesShareMemory) {
  const std::vector<Lifetime> lifetimes{{1000, 0, 1}, {1000, 2, 3}, {1000, 4, 5}};
  const Layout layout = plan_memory(lifetimes);
  expect_sound(lifetimes, layout);
  EXPECT_EQ(layout.bytes, 1024);
}

TEST(MemoryPlan, BuffersLiveAtOneInstructionDoNotShareMemory) {
  const std::vector<Lifetime> lifetimes{{64, 0, 2}, {64, 2, 4}};
  EXPECT_EQ(plan_memory(lifetimes).bytes, 128);
}

TEST(MemoryPlan, RandomLifetimesNeverOverlap) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 300; ++round) {
    const int count = static_cast<int>(random() % 60);
    const auto lifetimes = random_lifetimes(random, count, 1 + static_cast<int>(random() % 50));
    expect_sound(lifetimes, plan_memory(lifetimes));
  }
}

TEST(MemoryPlan, MatchesAPlainSearch) {
  std::mt19937_64 random(11);
  for (int round = 0; round < 200; ++round) {
    const int count = static_cast<int>(random() % 300);
    const auto lifetimes = random_lifetimes(random, count, 1 + static_cast<int>(random() % 400));
    const Layout layout = plan_memory(lifetimes), plain = plainly_planned(lifetimes);
    ASSERT_EQ(layout.bytes, plain.bytes) << "round " << round;
    ASSERT_EQ(layout.offsets, plain.offsets) << "round " << round;
  }
}

TEST(MemoryPlan, MatchesAPlainSearchForManyLayers) {
  const auto lifetimes = layered_lifetimes(512);
  const Layout layout = plan_memory(lifetimes), plain = plainly_planned(lifetimes);
  EXPECT_EQ(layout.bytes, plain.bytes);
  EXPECT_EQ(layout.offsets, plain.offsets);
  EXPECT_EQ(layout.alive_at_peak, most_alive(lifetimes).bytes);
}

TEST(MemoryPlan, ForwardAndBackwardNestWithoutLoss) {
  // Activations that live from forward to backward, used in reverse order.
  std::vector<Lifetime> lifetimes;
  for (int32_t i = 0; i < 40; ++i) lifetimes.push_back({640, i, 100 - i});
  const Layout layout = plan_memory(lifetimes);
  expect_sound(lifetimes, layout);
  EXPECT_EQ(layout.bytes, layout.alive_at_peak);
}

}  // namespace
}  // namespace strata::program
