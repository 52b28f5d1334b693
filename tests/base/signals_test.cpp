#include "base/signals.h"

#include <gtest/gtest.h>
#include <unistd.h>
#include <csignal>
#include <ctime>

namespace strata {
namespace {

// Each in a process of its own: the handlers are the process's.
void one_signal_then_exit(int signal) {
  catch_stop_signals();
  if (stop_requested() || stop_exit_code() != 0) _exit(1);
  raise(signal);
  _exit(stop_requested() ? stop_exit_code() : 2);
}

// Work that never asks, with nothing to save and with something.
void busy(bool saves) {
  catch_stop_signals();
  raise(SIGTERM);
  if (saves) save_before_stopping();
  timespec left = {.tv_sec = saves ? 1 : 60, .tv_nsec = 0};
  while (nanosleep(&left, &left) != 0) {
  }
  _exit(7);
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
  EXPECT_EXIT(busy(false), testing::ExitedWithCode(143), "stopped; what is finished is kept");
  EXPECT_EXIT(busy(true), testing::ExitedWithCode(7), "");
}

}  // namespace
}  // namespace strata
