// Runs training: the setup, the loop and the end of a run.
#pragma once

#include <functional>
#include <string>

#include "base/file.h"
#include "comm/world.h"
#include "config/run_config.h"
#include "strata/train.h"
#include "train/step_record.h"

namespace strata::training {

using strata::RunEnd;

// Functions of a program that embeds the run, called on the thread of rank 0; empty ones are not.
struct RunObserver {
  std::function<void(const StepRecord&)> step = {};
  std::function<void(int64_t step, const std::string& prompt, const std::string& text)> sample = {};
  // Takes all lines that would go to the terminal, progress too.
  std::function<void(LogLevel, std::string_view)> log = {};
};

struct RunOptions {
  config::RunConfig config;     // as read; validated with the model's sizes by train_run()
  std::string resume = "auto";  // "auto", "never", or a checkpoint to start from
  bool accept_changes = false;
  bool dry_run = false;         // validate everything, describe the run, and stop
  FileSystem* files = nullptr;  // nullptr: the machine's file system
  // Called with an error of the steps before it is thrown, while the memory still exists that MPI reads and
  // writes for other processes; it ends the job. Empty: not called.
  std::function<void(const std::exception&)> failed = {};
  RunObserver observer = {};
  // Shared by ranks that are threads of one process; nullptr: each rank has its own.
  struct SharedRun* shared = nullptr;
};

struct TrainResult {
  RunEnd end = RunEnd::kFinished;
  int64_t step = 0;          // the last completed one
  double loss = 0;           // of that step; NaN: it had no target
  std::string program = {};  // kDryRun: its fingerprint, as in strata explain
  int rank = 0;              // this one
};

// Runs until the configured end, or until `stop`, called after every step, returns true; then saves and
// returns. `stop` is also called while a tokenizer is trained and text is tokenized; there is nothing to save
// then, and Interrupted is thrown. ConfigError, DataError, WorldError as usual; DivergedError for a loss or
// gradient that is not finite. All ranks of `world` share the work and call it.
TrainResult train_run(comm::World& world, const RunOptions& options, const std::function<bool()>& stop);

// The same with `ranks` ranks as threads of this process; returns the first rank's result.
TrainResult train_on_threads(const RunOptions& options, int ranks, const std::function<bool()>& stop);

}  // namespace strata::training
