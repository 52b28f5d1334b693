#include "base/signals.h"

#include <signal.h>  // NOLINT(modernize-deprecated-headers): sigaction is POSIX, not C++
#include <unistd.h>

#include <atomic>

namespace strata {
namespace {

// A signal belongs to the process, and a handler can reach nothing but a global.
std::atomic<int> first_signal{0};
static_assert(std::atomic<int>::is_always_lock_free, "the handler may not wait for a lock");

extern "C" void note_stop_signal(int signal) {
  int none = 0;
  if (!first_signal.compare_exchange_strong(none, signal)) _exit(128 + signal);
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
}

bool stop_requested() {
  return first_signal.load(std::memory_order_relaxed) != 0;
}

int stop_exit_code() {
  const int signal = first_signal.load(std::memory_order_relaxed);
  return signal == 0 ? 0 : 128 + signal;
}

}  // namespace strata
