// The main function of every test program. It runs all tests, or one shard of them:
//
//   STRATA_TEST_SHARD=3/8    runs the third of eight consecutive ranges of the tests
//   STRATA_TEST_TIMEOUT=600  ends the program if a single test takes longer, in seconds
//
// Many tests share a process, so a test that ends its process (a crash, a timeout, an exit) is reported by
// name, in GoogleTest's format, and the tests after it count as not run. Each test starts with the working
// directory and the number of compute threads that the process started with.
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>

#include "base/parallel.h"
#include "runner/shard.h"

namespace strata::testing_runner {
namespace {

// State for the signal handlers, which may not allocate or format. Contains the process in which the test
// started, because tests fork and the exit of a child does not end the test.
char running[1024];
pid_t owner = 0;
int tests_left = 0;

void put(const char* text) {
  (void)!::write(STDERR_FILENO, text, std::strlen(text));
}

void put_number(int number) {
  char digits[12];
  char* at = digits + sizeof digits - 1;
  *at = '\0';
  do {
    *--at = static_cast<char>('0' + number % 10);
  } while ((number /= 10) > 0);
  put(at);
}

void report_end(const char* how) {
  if (running[0] == '\0' || ::getpid() != owner) return;
  put("[  FAILED  ] ");
  put(running);
  put(" (");
  put(how);
  put("; ");
  put_number(tests_left);
  put(" tests after it were not run)\n");
  running[0] = '\0';
}

// Not with sanitizers, which report crashes.
[[maybe_unused]] void on_crash(int signal) {
  report_end(::strsignal(signal));
  ::signal(signal, SIG_DFL);
  ::raise(signal);
}

void on_timeout(int) {
  report_end("it took longer than STRATA_TEST_TIMEOUT");
  ::_exit(1);
}

void on_exit() {
  report_end("it ended the process");
}

// A separate timer, because tests and the program use alarm().
class Timeout {
 public:
  Timeout() {
    const char* const text = std::getenv("STRATA_TEST_TIMEOUT");
    seconds_ = text == nullptr ? 0 : std::atoi(text);
    if (seconds_ <= 0) return;
    struct sigaction action = {};
    action.sa_handler = on_timeout;
    ::sigaction(SIGRTMIN + 5, &action, nullptr);
    struct sigevent event = {};
    event.sigev_notify = SIGEV_SIGNAL;
    event.sigev_signo = SIGRTMIN + 5;
    if (::timer_create(CLOCK_MONOTONIC, &event, &timer_) != 0) seconds_ = 0;
  }
  void restart() { set(seconds_); }
  void stop() { set(0); }

 private:
  void set(int seconds) {
    if (seconds_ <= 0) return;
    struct itimerspec when = {};
    when.it_value.tv_sec = seconds;
    ::timer_settime(timer_, 0, &when, nullptr);
  }

  int seconds_ = 0;
  timer_t timer_{};
};

class NameKeeper : public testing::EmptyTestEventListener {
 public:
  void OnTestIterationStart(const testing::UnitTest& unit, int) override {
    tests_left = unit.test_to_run_count();
  }
  void OnTestStart(const testing::TestInfo& test) override {
    std::error_code ignored;
    std::filesystem::current_path(folder_, ignored);
    set_compute_threads(threads_);
    --tests_left;
    std::snprintf(running, sizeof running, "%s.%s", test.test_suite_name(), test.name());
    timeout_.restart();
  }
  void OnTestEnd(const testing::TestInfo&) override {
    timeout_.stop();
    running[0] = '\0';
  }

 private:
  const std::filesystem::path folder_ = std::filesystem::current_path();
  const int threads_ = compute_threads();
  Timeout timeout_;
};

void watch_crashes() {
  owner = ::getpid();
  std::atexit(on_exit);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) ::signal(signal, on_crash);
#endif
}

std::vector<std::string> all_names() {
  std::vector<std::string> names;
  const testing::UnitTest& unit = *testing::UnitTest::GetInstance();
  for (int s = 0; s < unit.total_test_suite_count(); ++s) {
    const testing::TestSuite& suite = *unit.GetTestSuite(s);
    for (int t = 0; t < suite.total_test_count(); ++t)
      names.push_back(std::string(suite.name()) + "." + suite.GetTestInfo(t)->name());
  }
  return names;
}

int run(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (const char* const text = std::getenv("STRATA_TEST_SHARD")) {
    const auto shard = parse_shard(text);
    if (!shard) {
      std::fprintf(stderr, "STRATA_TEST_SHARD=%s: a shard is written as 3/8, the third of eight\n", text);
      return 2;
    }
    testing::GTEST_FLAG(filter) = filter_of(tests_of(*shard, all_names()));
  }
  // Programs started by tests must run all of their tests.
  ::unsetenv("STRATA_TEST_SHARD");
  watch_crashes();
  testing::UnitTest::GetInstance()->listeners().Append(new NameKeeper);
  return RUN_ALL_TESTS();
}

}  // namespace
}  // namespace strata::testing_runner

int main(int argc, char** argv) {
  return strata::testing_runner::run(argc, argv);
}
