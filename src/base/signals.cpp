#include "base/signals.h"

#include <signal.h>  // NOLINT(modernize-deprecated-headers): sigaction is POSIX, not C++
#include <sys/time.h>
#include <unistd.h>

#include <atomic>

namespace strata {
namespace {

// A signal belongs to the process, and a handler can reach nothing but a global.
std::atomic<int> first_signal{0};
static_assert(std::atomic<int>::is_always_lock_free, "the handler may not wait for a lock");

// How long work has to end by itself that has nothing to save.
constexpr suseconds_t kPatienceMicroseconds = 800'000;
std::atomic<bool> patient{false};

void set_timer(suseconds_t microseconds) {
  const itimerval once = {.it_interval = {}, .it_value = {.tv_sec = 0, .tv_usec = microseconds}};
  setitimer(ITIMER_REAL, &once, nullptr);
}

extern "C" void note_stop_signal(int signal) {
  int none = 0;
  if (signal == SIGUSR1 && first_signal != 0) return;  // a scheduler says it again
  if (!first_signal.compare_exchange_strong(none, signal)) _exit(128 + signal);
  if (!patient) set_timer(kPatienceMicroseconds);
}

extern "C" void end_at_once(int) {
  if (patient) return;
  constexpr char kText[] =
      "stopped; what is finished is kept, and the same command goes on or begins again\n";
  (void)!write(STDERR_FILENO, kText, sizeof kText - 1);
  _exit(128 + first_signal);
}

}  // namespace

void catch_stop_signals() {
  struct sigaction action = {};
  action.sa_handler = note_stop_signal;
  sigemptyset(&action.sa_mask);
  // Reads and writes go on after the handler; nobody has to expect EINTR.
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGUSR1, &action, nullptr);
  action.sa_handler = end_at_once;
  sigaction(SIGALRM, &action, nullptr);
}

void save_before_stopping() {
  patient = true;
  set_timer(0);
}

bool stop_requested() {
  return first_signal.load(std::memory_order_relaxed) != 0;
}

int stop_exit_code() {
  const int signal = first_signal.load(std::memory_order_relaxed);
  return signal == 0 ? 0 : signal == SIGUSR1 ? kTimeLimitExitCode : 128 + signal;
}

}  // namespace strata
