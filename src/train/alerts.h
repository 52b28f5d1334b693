// Runs log.alert_command: one program per alert, off the step's path.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/file.h"
#include "base/thread.h"

namespace strata::training {

struct AlertOptions {
  double limit_seconds = 10;     // a command that takes longer is killed, with its process group
  double interval_seconds = 60;  // between two commands of a rule
  double end_seconds = 2;        // for all commands that are queued or running when the run ends
  size_t queued = 32;            // alerts beyond them are dropped
  int64_t log_bytes = 1 << 20;   // of alert.log, and of alert.log.1, to which it is renamed
  std::function<double()> clock = monotonic_seconds;  // of interval_seconds
};

// Used by one thread, that of rank 0. The command is an argument list that no shell reads; it gets the event on
// standard input, and its output is appended to logs/alert.log in the run's folder. Commands run one at a time.
// Nothing that a command does is an error of the run: the first failure is logged, all are in alert.log.
class Alerts {
 public:
  // An empty `command`: alerts are ignored. `files` outlives this object and allows calls from several threads.
  Alerts(FileSystem& files, const Path& run, std::vector<std::string> command = {},
         AlertOptions options = {});
  ~Alerts();  // finish()
  Alerts(const Alerts&) = delete;
  Alerts& operator=(const Alerts&) = delete;

  // Queues the command for an event, a line of JSON, and returns immediately. False: not run, because the rule had
  // a command less than `interval_seconds` ago, too many are queued, or there is no command.
  bool raise(const std::string& rule, std::string event);
  // Logs the first failure on the calling thread. Cheap; call it after each step.
  void report();
  // Waits for all commands, at most for `end_seconds`; later alerts are ignored. Call it before a failed run ends
  // its processes.
  void finish();
  // For later alerts.
  void set_command(std::vector<std::string> command) { command_ = std::move(command); }

 private:
  struct Alert {
    std::vector<std::string> command;
    std::string rule, event;
  };
  void work();
  void run(const Alert& alert);
  void fail(const std::string& why);
  void write_log(const Alert& alert, const std::string& end, const std::string& output);

  FileSystem& files_;
  const Path folder_;  // of alert.log
  std::vector<std::string> command_;
  const AlertOptions options_;
  std::map<std::string, double> last_;  // of each rule, by options_.clock

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Alert> queue_;                                            // guarded by mutex_
  bool ending_ = false;                                                // set by finish(); guarded by mutex_
  std::string failure_;                                                // the first one; guarded by mutex_
  std::atomic<bool> has_failed_ = false;                               // once failure_ is set
  bool has_reported_ = false;                                          // the owner's
  std::atomic<double> end_ = std::numeric_limits<double>::infinity();  // when all commands must have ended
  std::unique_ptr<OwnedThread> worker_;                                // from the first alert on
};

}  // namespace strata::training
