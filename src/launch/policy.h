// Whether a run starts again after an attempt, and when: a function of exit codes, progress, the number of attempts and
// the scheduler's limit. No clock, no processes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "launch/launcher.h"

namespace strata::launch {

// What an exit code of an attempt means for a restart.
enum class EndKind {
  kDone,         // 0
  kUser,         // 2, 3, 5, 130, 143: a restart would end in the same way, or is not wanted
  kTimeLimit,    // 75
  kEnvironment,  // 4: files, network, a lost or hung rank
  kCrash,        // 134 to 139 and 141, with MPICH 6, 9 and 11: a rank was ended by a signal
  kBug,          // 1
  kOther,        // the launcher's own
};
EndKind kind_of_end(int code, LauncherKind launcher);

struct AttemptEnd {
  int code = 0;
  bool made_progress = false;               // there is a newer checkpoint or copy than at its start
  bool lost_host = false;                   // a host of this attempt no longer answers
  bool was_asked_to_stop = false;           // by a signal to strata launch
  std::optional<double> seconds_left = {};  // of the scheduler's limit; none: no limit
};

struct Decision {
  bool restart = false;
  double delay = 0;    // seconds before the restart
  std::string reason;  // for people: why it restarts, or why not
};

class RestartPolicy {
 public:
  // `max_restarts`: none: no limit besides the lack of progress.
  RestartPolicy(LauncherKind launcher, std::optional<int64_t> max_restarts)
      : launcher_(launcher), max_restarts_(max_restarts) {}

  // Called once after each attempt, in order.
  Decision after(const AttemptEnd& end);

 private:
  Decision consider(const AttemptEnd& end);

  LauncherKind launcher_;
  std::optional<int64_t> max_restarts_;
  int64_t restarts_ = 0, bugs_ = 0;
  int64_t without_progress_ = 0;  // consecutive attempts
};

}  // namespace strata::launch
