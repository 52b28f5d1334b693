#include "base/signals.h"

#include <gtest/gtest.h>
#include <unistd.h>
#include <csignal>
#include <ctime>
#include <limits>
#include <string>

namespace strata {
namespace {

// Each in a separate process: handlers are per process.
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

// Work of a rank that has something to save and does not end before force would follow.
void busy_before_force(int64_t stands_in_for) {
  catch_stop_signals();
  expect_force();
  set_stop_text("step 2 is saved", stands_in_for);
  save_before_stopping();
  set_stop_text("step 3 is saved", stands_in_for);
  busy(true);
}

TEST(SignalsTest, PrintsHowToResumeBeforeItIsEndedByForce) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const std::string said = "step 3 is saved\n", nothing;
  EXPECT_EXIT(busy_before_force(0), testing::ExitedWithCode(7), testing::Eq(said));
  // Another process, this one's parent, prints it instead.
  EXPECT_EXIT(busy_before_force(getppid()), testing::ExitedWithCode(7), testing::Eq(nothing));
  EXPECT_EXIT(busy_before_force(std::numeric_limits<pid_t>::max()), testing::ExitedWithCode(7),
              testing::Eq(said));
  // One of many ranks.
  EXPECT_EXIT((set_stop_text(""), busy(false)), testing::ExitedWithCode(143), testing::Eq(nothing));
}

TEST(SignalsTest, TheFirstIsNotedTheSecondEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(one_signal_then_exit(SIGINT), testing::ExitedWithCode(130), "");
  EXPECT_EXIT(one_signal_then_exit(SIGTERM), testing::ExitedWithCode(143), "");
  EXPECT_EXIT(two_signals(), testing::ExitedWithCode(143), "");
  EXPECT_EXIT(busy(false), testing::ExitedWithCode(143), "stopped; finished work is saved");
  EXPECT_EXIT(busy(true), testing::ExitedWithCode(7), "");
}

}  // namespace
}  // namespace strata
