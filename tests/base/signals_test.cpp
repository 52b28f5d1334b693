#include "base/signals.h"

#include <gtest/gtest.h>
#include <unistd.h>
#include <csignal>

namespace strata {
namespace {

// Each in a process of its own: the handlers are the process's.
void one_signal_then_exit(int signal) {
  catch_stop_signals();
  if (stop_requested() || stop_exit_code() != 0) _exit(1);
  raise(signal);
  _exit(stop_requested() ? stop_exit_code() : 2);
}

void two_signals() {
  catch_stop_signals();
  raise(SIGINT);
  raise(SIGTERM);
  _exit(3);
}

TEST(SignalsTest, TheFirstIsNotedTheSecondEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(one_signal_then_exit(SIGINT), testing::ExitedWithCode(130), "");
  EXPECT_EXIT(one_signal_then_exit(SIGTERM), testing::ExitedWithCode(143), "");
  EXPECT_EXIT(two_signals(), testing::ExitedWithCode(143), "");
}

}  // namespace
}  // namespace strata
