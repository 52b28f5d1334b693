// Sets up, runs and finishes a training run.
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
  Log log = {};
};

struct RunOptions {
  config::RunConfig config;     // as read; train_run() validates it with the model's sizes
  std::string resume = "auto";  // "auto", "never", or a checkpoint to start from
  bool accept_changes = false;
  bool dry_run = false;         // validate everything, log a description of the run, and return
  FileSystem* files = nullptr;  // nullptr: the real file system
  // Called when the training loop fails, before the error propagates and frees buffers that MPI may still
  // access for other processes. It should end the job. Optional.
  std::function<void(const std::exception&)> failed = {};
  RunObserver observer = {};
  // Shared by ranks that are threads of one process; nullptr: this rank makes its own.
  struct SharedRun* shared = nullptr;
};

struct TrainResult {
  RunEnd end = RunEnd::kFinished;
  int64_t step = 0;          // the last completed step
  double loss = 0;           // of that step; NaN if it had no targets
  std::string program = {};  // kDryRun: the program's fingerprint, as in strata explain
  int rank = 0;              // this rank
};

// Trains until the configured end or until `stop` returns true, then saves and returns. All ranks of `world`
// call it and share the work. `stop` is called after every step. It is also called while a tokenizer is
// trained and text is tokenized: there is nothing to save yet, so a stop then throws Interrupted. Throws
// DivergedError if the loss or gradient is not finite, and ConfigError, DataError and WorldError as usual.
TrainResult train_run(comm::World& world, const RunOptions& options, const std::function<bool()>& stop);

// Calls train_run() on `ranks` threads of this process, one per rank; returns the result of rank 0.
TrainResult train_on_threads(const RunOptions& options, int ranks, const std::function<bool()>& stop);

}  // namespace strata::training
