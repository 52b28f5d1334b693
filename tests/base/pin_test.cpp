#include "base/pin.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "base/parallel.h"
#include "base/thread.h"

namespace strata {
namespace {

// The processors that each compute thread may use.
std::vector<std::vector<int>> masks() {
  std::vector<std::vector<int>> out(static_cast<size_t>(compute_threads()));
  on_each_thread([&](int thread) {
    cpu_set_t set;
    CPU_ZERO(&set);
    sched_getaffinity(0, sizeof set, &set);
    for (int i = 0; i < CPU_SETSIZE; ++i) {
      if (CPU_ISSET(i, &set)) out[static_cast<size_t>(thread)].push_back(i);
    }
  });
  return out;
}

// A claim that no run on this machine has.
std::string claim() {
  return "strata-test-" + std::to_string(getpid());
}

class Pin : public testing::Test {
 protected:
  Pin() { set_compute_threads(available_processors()); }
  ~Pin() override { set_compute_threads(before_); }
  bool possible() const {
    return pinning_helps(available_processors(), available_processors(),
                         static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)));
  }
  int before_ = compute_threads();
};

TEST(PinRule, AllThreadsOnAllProcessorsOfTheMachine) {
#ifndef STRATA_PLAIN_THREADS
  EXPECT_TRUE(pinning_helps(8, 8, 8));
#endif
  EXPECT_FALSE(pinning_helps(1, 1, 1));
  EXPECT_FALSE(pinning_helps(4, 8, 8)) << "fewer threads than processors: the system places them better";
  EXPECT_FALSE(pinning_helps(4, 4, 8)) << "the process is already placed";
  EXPECT_FALSE(pinning_helps(16, 8, 8));
}

TEST_F(Pin, BindsEachThreadToAProcessorForItsLifetime) {
  const auto free = masks();
  if (!possible()) GTEST_SKIP() << "this machine or the processors of this process do not allow it";
  {
    const PinnedThreads pinned(true, claim());
    ASSERT_TRUE(pinned.pinned());
    const auto bound = masks();
    EXPECT_EQ(bound[0], free[0]) << "the first is not bound";
    for (size_t thread = 1; thread < bound.size(); ++thread)
      EXPECT_EQ(bound[thread], (std::vector<int>{free[0][thread]}));
    // This includes threads that it starts.
    int seen = 0;
    OwnedThread([&](const std::stop_token&) { seen = available_processors(); }).join();
    EXPECT_EQ(seen, static_cast<int>(free[0].size()));
    EXPECT_EQ(available_processors(), static_cast<int>(free[0].size()));

    const PinnedThreads second(true, claim());
    EXPECT_FALSE(second.pinned()) << "another object has the claim";
  }
  EXPECT_EQ(masks(), free);
}

TEST_F(Pin, BindsNothingIfNotWantedOrNotUseful) {
  const auto free = masks();
  const PinnedThreads unwanted(false, claim());
  EXPECT_FALSE(unwanted.pinned());
  EXPECT_EQ(masks(), free);
  set_compute_threads(available_processors() + 1);
  const PinnedThreads crowded(true, claim());
  EXPECT_FALSE(crowded.pinned());
}

}  // namespace
}  // namespace strata
