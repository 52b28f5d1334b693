// One attempt: the launcher's process from its start until nothing of it is left.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "launch/process.h"
#include "launch/rank_watch.h"

namespace strata::launch {

// The signals that ask strata launch to stop, taken from a descriptor instead of a handler: blocked for this thread while
// the object exists.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  int descriptor() const { return descriptor_.get(); }
  // The next signal that has arrived; 0: none.
  int take();
  // Waits; true: a signal arrived, which take() returns.
  bool wait(double seconds);
  // The first of SIGINT, SIGTERM and SIGUSR1; 0: none yet.
  int first() const { return first_; }

 private:
  Descriptor descriptor_;
  struct Mask;
  std::unique_ptr<Mask> before_;
  int first_ = 0, waiting_ = 0;
};

struct AttemptResult {
  int code = 0;
  double began = 0, ended = 0;  // Unix seconds
  std::string output_end;       // of both streams, at most 64 KiB
  bool left_processes = false;  // some could not be killed
};

// Runs the launcher and copies its output to this process's. The first signal asks the ranks to save and stop: they get
// SIGUSR1, which every launcher passes on without ending them by force. A second SIGINT or SIGTERM ends them by force.
// If the launcher does not end long after a rank has, it is killed; `has_children`: also if none of the processes that it
// started on this host runs any more.
AttemptResult run_attempt(const std::vector<std::string>& command, const std::vector<std::string>& variables,
                          bool has_children, RankWatch& watch, StopSignals& signals);

// What strata launch returns for an attempt that it was asked to stop: 130, 143 or 75 after a clean end.
int code_after_stop(int code, int signal);

}  // namespace strata::launch
