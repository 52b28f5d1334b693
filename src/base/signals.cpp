#include "base/signals.h"

#include <signal.h>  // NOLINT(modernize-deprecated-headers): sigaction is POSIX, not C++
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>

namespace strata {
namespace {

// A signal belongs to the process, and a handler can reach nothing but a global.
std::atomic<int> first_signal{0};
static_assert(std::atomic<int>::is_always_lock_free, "the handler may not wait for a lock");

// How long work with nothing to save may take to end by itself, and how long saving may take if force
// follows.
constexpr suseconds_t kPatienceMicroseconds = 800'000, kBeforeForceMicroseconds = 500'000;
std::atomic<bool> patient{false}, force_follows{false};

// What a handler prints: one of two buffers, while the other is written.
struct StopText {
  std::array<char, 400> bytes = {};
  size_t size = 0;
  pid_t stands_in_for = 0;
};
constexpr std::string_view kUsualText =
    "stopped; finished work is saved; run the same command again to resume or restart";
std::array<StopText, 2> stop_texts;
std::atomic<int> stop_text{-1};  // −1: the usual one

void print_stop_text() {
  const int index = stop_text;
  std::string_view text = kUsualText;
  if (index >= 0) {
    const StopText& chosen = stop_texts[static_cast<size_t>(index)];
    if (chosen.stands_in_for != 0 && kill(chosen.stands_in_for, 0) == 0) return;
    text = {chosen.bytes.data(), chosen.size};
  }
  if (text.empty()) return;
  (void)!write(STDERR_FILENO, text.data(), text.size());
  (void)!write(STDERR_FILENO, "\n", 1);
}

void set_timer(suseconds_t microseconds) {
  const itimerval once = {.it_interval = {}, .it_value = {.tv_sec = 0, .tv_usec = microseconds}};
  setitimer(ITIMER_REAL, &once, nullptr);
}

extern "C" void note_stop_signal(int signal) {
  int none = 0;
  if (signal == SIGUSR1 && first_signal != 0) return;  // a scheduler sends it again
  if (!first_signal.compare_exchange_strong(none, signal)) _exit(128 + signal);
  const bool forced = force_follows && signal != SIGUSR1;
  if (forced) return set_timer(kBeforeForceMicroseconds);
  if (!patient) set_timer(kPatienceMicroseconds);
}

extern "C" void end_at_once(int) {
  if (patient && !force_follows) return;
  const int interrupted = errno;  // of the code that goes on after the handler
  print_stop_text();
  errno = interrupted;
  if (patient) return;
  _exit(128 + first_signal);
}

}  // namespace

void catch_stop_signals() {
  struct sigaction action = {};
  action.sa_handler = note_stop_signal;
  sigemptyset(&action.sa_mask);
  // Reads and writes continue after the handler; no caller has to expect EINTR.
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGUSR1, &action, nullptr);
  action.sa_handler = end_at_once;
  sigaction(SIGALRM, &action, nullptr);
}

void save_before_stopping() {
  patient = true;
  if (!force_follows) set_timer(0);
}

void set_stop_text(std::string_view text, int64_t stands_in_for) {
  const int next = stop_text == 0 ? 1 : 0;
  StopText& chosen = stop_texts[static_cast<size_t>(next)];
  chosen.size = std::min(text.size(), chosen.bytes.size());
  std::copy_n(text.begin(), chosen.size, chosen.bytes.begin());
  chosen.stands_in_for = static_cast<pid_t>(stands_in_for);
  stop_text = next;
}

void expect_force() {
  force_follows = true;
}

bool stop_requested() {
  return first_signal.load(std::memory_order_relaxed) != 0;
}

int stop_exit_code() {
  const int signal = first_signal.load(std::memory_order_relaxed);
  return signal == 0 ? 0 : signal == SIGUSR1 ? kTimeLimitExitCode : 128 + signal;
}

}  // namespace strata
