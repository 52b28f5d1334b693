#include "launch/attempt.h"

#include <poll.h>
#include <signal.h>  // NOLINT(modernize-deprecated-headers): sigset_t is POSIX, not C++
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/signals.h"

namespace strata::launch {
namespace {

constexpr size_t kKept = size_t{64} << 10;  // of the output, for the first failure
// How long the launcher may exist after one of its ranks has ended. Ranks of a run end within a moment of each other.
constexpr double kPatience = 60;
// The same if no process of the launcher is left: Open MPI's mpirun sometimes waits for itself after a rank was killed.
constexpr double kAlonePatience = 3, kAloneCheck = 0.5;
constexpr double kForceSeconds = 5;  // after a second signal, for the launcher's own clean-up
constexpr double kEndSeconds = 10;   // for processes to be gone once they are killed
constexpr int kPollMilliseconds = 50;

sigset_t stop_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1}) sigaddset(&set, signal);
  return set;
}

// Writes all, even to a terminal that is slow.
void write_all(int to, std::string_view text) {
  while (!text.empty()) {
    const ssize_t put = ::write(to, text.data(), text.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return;  // the reader is gone; training goes on
    text.remove_prefix(static_cast<size_t>(put));
  }
}

// Copies the output of the launcher and keeps its end.
class OutputCopy {
 public:
  void take(const Descriptor& from, int to) {
    std::string text;
    read_available(from, text);
    if (text.empty()) return;
    write_all(to, text);
    end_ += text;
    if (end_.size() > 2 * kKept) end_.erase(0, end_.size() - kKept);
  }
  std::string end() && {
    if (end_.size() > kKept) end_.erase(0, end_.size() - kKept);
    return std::move(end_);
  }

 private:
  std::string end_;
};

}  // namespace

struct StopSignals::Mask {
  sigset_t set;
};

StopSignals::StopSignals() : before_(std::make_unique<Mask>()) {
  const sigset_t signals = stop_signals();
  ::pthread_sigmask(SIG_BLOCK, &signals, &before_->set);
  descriptor_ = Descriptor(::signalfd(-1, &signals, SFD_NONBLOCK | SFD_CLOEXEC));
  if (!descriptor_.is_open()) throw WorldError("[launch] cannot wait for signals: {}", std::strerror(errno));
}

StopSignals::~StopSignals() {
  while (take() != 0) {
  }
  ::pthread_sigmask(SIG_SETMASK, &before_->set, nullptr);
}

int StopSignals::take() {
  if (waiting_ != 0) return std::exchange(waiting_, 0);
  signalfd_siginfo info{};
  if (::read(descriptor_.get(), &info, sizeof info) != static_cast<ssize_t>(sizeof info)) return 0;
  const int signal = static_cast<int>(info.ssi_signo);
  if (first_ == 0) first_ = signal;
  return signal;
}

bool StopSignals::wait(double seconds) {
  for (const double begin = monotonic_seconds(); waiting_ == 0;) {
    waiting_ = take();
    const double left = seconds - (monotonic_seconds() - begin);
    if (waiting_ != 0 || left <= 0) break;
    pollfd one{descriptor_.get(), POLLIN, 0};
    ::poll(&one, 1, static_cast<int>(std::ceil(std::min(left, 3600.0) * 1e3)));
  }
  return waiting_ != 0;
}

AttemptResult run_attempt(const std::vector<std::string>& command, const std::vector<std::string>& variables,
                          bool has_children, RankWatch& watch, StopSignals& signals) {
  AttemptResult result;
  result.began = unix_seconds();
  ProcessTree tree(command, variables);
  OutputCopy output;
  double forced = INFINITY, rank_ended = INFINITY;  // monotonic seconds
  double checked = monotonic_seconds(), alone = INFINITY;
  bool is_asked = false, had_children = false;
  while (!tree.code()) {
    watch.look();
    std::vector<pollfd> ready = {{tree.output().get(), POLLIN, 0},
                                 {tree.errors().get(), POLLIN, 0},
                                 {signals.descriptor(), POLLIN, 0}};
    // A closed stream would wake the loop all the time.
    for (pollfd& one : ready) {
      pollfd now = one;
      if (::poll(&now, 1, 0) == 1 && (now.revents & POLLIN) == 0) one.fd = -1;
    }
    for (const int descriptor : watch.descriptors()) ready.push_back({descriptor, POLLIN, 0});
    ::poll(ready.data(), ready.size(), kPollMilliseconds);
    output.take(tree.output(), STDOUT_FILENO);
    output.take(tree.errors(), STDERR_FILENO);
    const double now = monotonic_seconds();
    for (int signal = signals.take(); signal != 0; signal = signals.take()) {
      if (!is_asked) {
        is_asked = true;
        log_info("launch: asking the ranks to save and stop");
        tree.send(SIGUSR1);
      } else if (signal != SIGUSR1 && std::isinf(forced)) {
        log_warning("launch: ending the ranks by force; steps since the last save are lost");
        forced = now;
        tree.send(SIGTERM);
      } else if (signal != SIGUSR1) {
        tree.end_all(0);
      }
    }
    watch.look();
    if (watch.first_end() && std::isinf(rank_ended)) rank_ended = now;
    if (has_children && now > checked + kAloneCheck) {
      checked = now;
      const bool has_any = tree.has_children();
      had_children = had_children || has_any;
      alone = has_any || !had_children ? INFINITY : std::min(alone, now);
    }
    if (now > alone + kAlonePatience) {
      log_warning("launch: {} does not end although its ranks have; killing it", command.front());
      tree.end_all(0);
    }
    if (now > forced + kForceSeconds || now > rank_ended + kPatience) tree.end_all(0);
  }
  result.code = *tree.code();
  watch.look();
  result.left_processes = !tree.end_all(kEndSeconds);
  watch.remove_segments();
  output.take(tree.output(), STDOUT_FILENO);
  output.take(tree.errors(), STDERR_FILENO);
  result.output_end = std::move(output).end();
  result.ended = unix_seconds();
  return result;
}

int code_after_stop(int code, int signal) {
  // A launcher without handlers was ended by the request before any rank ran.
  constexpr int kEndedByRequest = 128 + SIGUSR1;
  const bool is_clean = code == kTimeLimitExitCode || code == kEndedByRequest ||
                        code == kInterruptedExitCode || code == 128 + SIGTERM;
  if (!is_clean) return code;
  return signal == SIGUSR1 ? kTimeLimitExitCode : 128 + signal;
}

}  // namespace strata::launch
