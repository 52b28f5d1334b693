#include "program/memory_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
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
          << "buffers " << j << " and " << i << " live at once and overlap";
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

TEST(MemoryPlan, NothingNeedsNothing) {
  EXPECT_EQ(plan_memory({}).bytes, 0);
  const std::vector<Lifetime> empty{{0, 0, 3}, {0, 1, 1}};
  expect_sound(empty, plan_memory(empty));
}

TEST(MemoryPlan, BuffersThatNeverMeetShare) {
  const std::vector<Lifetime> lifetimes{{1000, 0, 1}, {1000, 2, 3}, {1000, 4, 5}};
  const Layout layout = plan_memory(lifetimes);
  expect_sound(lifetimes, layout);
  EXPECT_EQ(layout.bytes, 1024);
}

TEST(MemoryPlan, MeetingAtOneInstructionIsMeeting) {
  const std::vector<Lifetime> lifetimes{{64, 0, 2}, {64, 2, 4}};
  EXPECT_EQ(plan_memory(lifetimes).bytes, 128);
}

TEST(MemoryPlan, RandomLifetimesNeverOverlap) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 300; ++round) {
    const int count = static_cast<int>(random() % 60);
    const int span = 1 + static_cast<int>(random() % 50);
    std::vector<Lifetime> lifetimes;
    for (int i = 0; i < count; ++i) {
      const auto a = static_cast<int32_t>(random() % static_cast<uint64_t>(span));
      const auto b = static_cast<int32_t>(random() % static_cast<uint64_t>(span));
      // Sizes of very different scales, some empty.
      const auto bytes = static_cast<int64_t>(random() % (uint64_t{1} << (random() % 20)));
      lifetimes.push_back({bytes, std::min(a, b), std::max(a, b)});
    }
    expect_sound(lifetimes, plan_memory(lifetimes));
  }
}

TEST(MemoryPlan, ForwardAndBackwardNestWithoutLoss) {
  // Activations that live from forward to backward, last made first used.
  std::vector<Lifetime> lifetimes;
  for (int32_t i = 0; i < 40; ++i) lifetimes.push_back({640, i, 100 - i});
  const Layout layout = plan_memory(lifetimes);
  expect_sound(lifetimes, layout);
  EXPECT_EQ(layout.bytes, layout.alive_at_peak);
}

}  // namespace
}  // namespace strata::program
