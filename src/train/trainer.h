// Training: the loop, and everything around it that a run needs.
#pragma once

#include <functional>
#include <string>

#include "base/file.h"
#include "comm/world.h"
#include "config/run_config.h"

namespace strata::train {

struct RunOptions {
  config::RunConfig config;     // as read; validated here together with the model's sizes
  std::string resume = "auto";  // "auto", "never", or a checkpoint to start from
  bool accept_changes = false;
  bool dry_run = false;         // validate everything, say what would run, and stop
  FileSystem* files = nullptr;  // nullptr: the machine's own
  // Called with an error of the steps before it is thrown, while the memory is still there that MPI reads and
  // writes for other processes: ends the job. Empty: nothing.
  std::function<void(const std::exception&)> failed = {};
  // What ranks that are threads of one process share; nullptr: each makes its own.
  struct SharedRun* shared = nullptr;
};

enum class RunEnd {
  kFinished,     // all steps are done
  kInterrupted,  // stop was asked for; saved
  kTimeLimit,    // run.max_time is over; saved
  kDryRun,
};

struct TrainResult {
  RunEnd end = RunEnd::kFinished;
  int64_t step = 0;          // the last one that was made
  double loss = 0;           // of that step; NaN: it had no target
  std::string program = {};  // kDryRun: its fingerprint, which strata explain tells too
  int rank = 0;              // of several, this one
};

// Runs until the configuration's end, or until `stop` says so (asked after every step); then finishes the
// step, saves and returns. `stop` is asked as well while a tokenizer is trained and text tokenized, where
// there is nothing to save: Interrupted is thrown. ConfigError, DataError, WorldError as anywhere;
// DivergedError for a loss or gradient that is not finite. `world`: the ranks that share the work, which all
// call it.
TrainResult train_run(comm::World& world, const RunOptions& options, const std::function<bool()>& stop);

// The same on as many ranks as threads of this process; what the first of them came to.
TrainResult train_on_threads(const RunOptions& options, int ranks, const std::function<bool()>& stop);

}  // namespace strata::train
