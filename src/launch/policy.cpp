#include "launch/policy.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "base/clock.h"
#include "base/signals.h"

namespace strata::launch {
namespace {

// Attempts in a row without a new checkpoint or copy after which the run is given up, as launchers count (NVRx).
constexpr int64_t kMostWithoutProgress = 3;
// Less time than this before the scheduler's limit is not worth a start: ranks stop two minutes before it.
constexpr double kLeastSecondsLeft = 300;
constexpr double kFirstDelay = 5, kLongestDelay = 300;

// The first restart is immediate: most failures do not repeat.
double delay_after(int64_t without_progress) {
  if (without_progress < 2) return 0;
  return std::min(kLongestDelay, kFirstDelay * std::pow(2.0, static_cast<double>(without_progress - 2)));
}

std::string meaning_of(int code) {
  switch (code) {
    case 2:
      return "the configuration or an argument is wrong";
    case 3:
      return "the data, the tokenizer or a model directory is wrong";
    case 5:
      return "training diverged and recovery was exhausted";
    case 130:
    case 143:
      return "the run was stopped";
    default:
      return fmt::format("the launcher ended with code {}", code);
  }
}

}  // namespace

EndKind kind_of_end(int code, LauncherKind launcher) {
  switch (code) {
    case 0:
      return EndKind::kDone;
    case 1:
      return EndKind::kBug;
    case 2:
    case 3:
    case 5:
    case 130:
    case 143:
      return EndKind::kUser;
    case 4:
      return EndKind::kEnvironment;
    case kTimeLimitExitCode:
      return EndKind::kTimeLimit;
    default:
      break;
  }
  if (code >= 134 && code <= 139) return EndKind::kCrash;
  // SIGPIPE: Open MPI's mpirun or a rank wrote to one that had just died.
  if (code == 141) return EndKind::kCrash;
  // MPICH's mpiexec returns the signal.
  if (launcher == LauncherKind::kHydra && (code == 6 || code == 9 || code == 11)) return EndKind::kCrash;
  return EndKind::kOther;
}

Decision RestartPolicy::after(const AttemptEnd& end) {
  without_progress_ = end.made_progress ? 0 : without_progress_ + 1;
  Decision decision = consider(end);
  if (decision.restart) ++restarts_;
  return decision;
}

Decision RestartPolicy::consider(const AttemptEnd& end) {
  Decision out;
  const auto stop = [&](std::string reason) {
    out.restart = false;
    out.reason = std::move(reason);
    return out;
  };
  switch (kind_of_end(end.code, launcher_)) {
    case EndKind::kDone:
      return stop("the run has finished");
    case EndKind::kUser:
      return stop(meaning_of(end.code));
    case EndKind::kTimeLimit:
      if (end.seconds_left && *end.seconds_left < kLeastSecondsLeft) {
        return stop(fmt::format("the scheduler's limit is {} away",
                                human_duration(std::max(0.0, *end.seconds_left))));
      }
      out.reason = "the run stopped at its time limit";
      break;
    case EndKind::kEnvironment:
      out.reason = "a rank, a host, a disk or the network failed";
      break;
    case EndKind::kCrash:
      out.reason = "a rank was killed";
      break;
    case EndKind::kBug:
      if (++bugs_ > 1) return stop("a bug in strata, for the second time");
      out.reason = "a bug in strata";
      break;
    case EndKind::kOther:
      if (!end.lost_host) return stop(meaning_of(end.code));
      break;
  }
  if (end.lost_host) out.reason = "a host does not answer";
  if (end.was_asked_to_stop) return stop("it was asked to stop");
  if (without_progress_ >= kMostWithoutProgress) {
    return stop(
        fmt::format("{}, for the third attempt in a row without a new checkpoint or copy", out.reason));
  }
  if (max_restarts_ && restarts_ >= *max_restarts_)
    return stop(fmt::format("{}, after {} restarts (--max-restarts)", out.reason, restarts_));
  out.restart = true;
  out.delay = delay_after(without_progress_);
  return out;
}

}  // namespace strata::launch
