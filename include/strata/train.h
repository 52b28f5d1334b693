// Plans and trains runs.
//
// Threads: a Plan is an immutable value that threads may share. train() computes with the threads that the plan asks
// for, calls back from the thread of rank 0, one call at a time, and returns when all its threads have ended. A process
// trains one run at a time: the compute threads are shared. It installs no signal handlers. Ownership: values; callbacks
// are copied. Errors: kConfig, kData and kWorld before and during the run; kDiverged for a loss or gradient that is not
// finite. An exception of a callback ends the run as a kill would: the next train() resumes from the last checkpoint.
// Stability: members may be added to the structs within 0.x; text() may change in any release, json() is that of
// `strata explain --json`.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "strata/config.h"
#include "strata/error.h"

namespace strata {

struct PlanOptions {
  // Ranks that share the work. train() runs them as threads of this process, unless a launcher such as mpirun started
  // that number of processes, which then all call train().
  std::int64_t ranks = 1;
  Log log = {};
};

// One rank's memory; with a pipeline, the first rank's.
struct MemoryPlan {
  std::int64_t bytes = 0;   // of the arena, which holds all that the rank computes with
  std::int64_t fixed = 0;   // the part of it for weights, gradients and optimizer states
  std::int64_t saves = 0;   // more, for copies while a checkpoint is written
  std::int64_t budget = 0;  // memory.budget
  bool fits = false;        // on every rank
};

// Predicted from the measured rates of this machine's kernels, without evaluations and checkpoints.
struct TimePlan {
  std::int64_t steps = 0, tokens_per_step = 0;
  double step_seconds = 0, run_seconds = 0;
  double tokens_per_second = 0;
  double flops_per_step = 0;
  double mfu = 0;  // of the measured GEMM peak, 0 to 1
};

class STRATA_API Plan {
 public:
  const Config& config() const;  // every "auto" replaced by the choice
  std::int64_t parameters() const;
  MemoryPlan memory() const;
  TimePlan time() const;
  std::string text() const;  // as `strata explain` prints it
  std::string json() const;  // as `strata explain --json` prints it

  struct Impl;  // internal
  explicit Plan(std::shared_ptr<const Impl> impl);
  const Impl& impl() const { return *impl_; }

 private:
  std::shared_ptr<const Impl> impl_;
};

// Compiles the run's programs and prices them. Writes nothing and tokenizes no data; the first plan on a machine
// measures its kernels for some seconds.
STRATA_API Plan plan(const Config& config, const PlanOptions& options = {});

struct StepReport {
  std::int64_t step = 0;
  std::optional<double> loss;  // none: no token of the step has a target
  double grad_norm = 0, lr = 0;
  std::int64_t tokens = 0;  // since the run began
  double seconds = 0;       // of the step
  // After a step with an evaluation: "eval/valid/loss" and its value, …
  std::vector<std::pair<std::string, double>> evaluations;
};

struct TrainCallbacks {
  std::function<void(const StepReport&)> step = {};
  // A text that the model wrote for one of eval.sample_prompts.
  std::function<void(std::int64_t step, const std::string& prompt, const std::string& text)> sample = {};
  // Messages of the run, with the lines that show its progress.
  Log log = {};
  // Asked after each step: true saves and returns.
  std::function<bool()> stop = {};
};

struct TrainOptions {
  std::string resume =
      "auto";  // "auto": the run in its folder, if any; "never"; or a checkpoint to start from
  bool accept_changes = false;  // resume although keys have changed that affect training
  bool dry_run = false;         // check configuration, inputs, disk and memory, then return
};

enum class RunEnd {
  kFinished,     // all steps are done; the model is in FOLDER/final
  kInterrupted,  // `stop` asked for it; saved
  kTimeLimit,    // run.max_time has passed; saved
  kDryRun,
};

struct TrainResult {
  RunEnd end = RunEnd::kFinished;
  std::int64_t step = 0;     // the last one
  double loss = 0;           // of that step; NaN: it had no target, or this call made no step
  std::string folder = {};   // the run's; what Model::open takes
  std::string program = {};  // kDryRun: the programs' fingerprint
  int rank = 0;              // this process's, of several
};

// Trains the plan's run in its run.folder, or resumes it there.
STRATA_API TrainResult train(const Plan& plan, const TrainCallbacks& callbacks = {},
                             const TrainOptions& options = {});

}  // namespace strata
