#include "base/signals.h"

#include <gtest/gtest.h>
#include <unistd.h>
#include <csignal>
#include <ctime>
#include <limits>
#include <string>

namespace strata {
namespace {

// Each test uses a separate process, because handlers are per process.
void one_signal_then_exit(int signal) {
  catch_stop_signals();
  if (stop_requested() || stop_exit_code() != 0) _exit(1);
  raise(signal);
  _exit(stop_requested() ? stop_exit_code() : 2);
}

// Work that never polls for signals, with or without something to save.
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

// Work of a rank that has something to save and does not end before the forced exit.
void busy_before_force(int64_t stands_in_for) {
  catch_stop_signals();
  expect_force();
  set_stop_text("step 2 is saved", stands_in_for);
  save_before_stopping();
  set_stop_text("step 3 is saved", stands_in_for);
  busy(true);
}

TEST(SignalsTest, PrintsHowToResumeBeforeAForcedExit) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const std::string said = "step 3 is saved\n", nothing;
  EXPECT_EXIT(busy_before_force(0), testing::ExitedWithCode(7), testing::Eq(said));
  // The parent process prints it instead.
  EXPECT_EXIT(busy_before_force(getppid()), testing::ExitedWithCode(7), testing::Eq(nothing));
  EXPECT_EXIT(busy_before_force(std::numeric_limits<pid_t>::max()), testing::ExitedWithCode(7),
              testing::Eq(said));
  // One rank of many.
  EXPECT_EXIT((set_stop_text(""), busy(false)), testing::ExitedWithCode(143), testing::Eq(nothing));
}

TEST(SignalsTest, FirstIsRecordedAndSecondEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(one_signal_then_exit(SIGINT), testing::ExitedWithCode(130), "");
  EXPECT_EXIT(one_signal_then_exit(SIGTERM), testing::ExitedWithCode(143), "");
  EXPECT_EXIT(two_signals(), testing::ExitedWithCode(143), "");
  EXPECT_EXIT(busy(false), testing::ExitedWithCode(143), "stopped; finished work is saved");
  EXPECT_EXIT(busy(true), testing::ExitedWithCode(7), "");
}

}  // namespace
}  // namespace strata
