// strata train
#include <nlohmann/json.hpp>

#include <cstdio>
#include <cstdlib>

#include "base/error.h"
#include "base/log.h"
#include "base/signals.h"
#include "train/command_config.h"
#include "train/commands.h"
#include "train/trainer.h"

namespace strata::train {

namespace {

// Several ranks belong to a later version. One of them that trained alone would do the work of all, as often
// as there are ranks.
void check_ranks(int64_t ranks) {
  if (ranks > 1) {
    throw ConfigError("[--ranks] found {}: not yet in this version; leave it out, all cores work on one rank",
                      ranks);
  }
  // What mpirun (Open MPI, MPICH) and srun tell each process that they start.
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"}) {
    const char* size = std::getenv(name);
    if (size == nullptr || std::atoll(size) <= 1) continue;
    throw ConfigError("[strata train] found {} ranks ({}): not yet in this version; start one process", size,
                      name);
  }
}

}  // namespace

int run_training(const TrainOptions& options) {
  check_ranks(options.ranks);
  catch_stop_signals();
  RunOptions run;
  run.config = read_command_config(options.inputs, options.sets);
  run.accept_changes = options.accept_changes;
  run.dry_run = options.dry_run;
  switch (options.resume) {
    case ResumeMode::kAuto:
      run.resume = "auto";
      break;
    case ResumeMode::kNever:
      run.resume = "never";
      break;
    case ResumeMode::kFrom:
      run.resume = options.resume_from.string();
      break;
  }
  const TrainResult result = [&]() -> TrainResult {
    try {
      return train_run(run, stop_requested);
    } catch (const Interrupted&) {
      log_info("stopped before the first step; the same command starts again");
      return {RunEnd::kInterrupted, 0, 0};
    }
  }();
  if (options.json) {
    static constexpr const char* kEnds[] = {"finished", "interrupted", "time_limit", "dry_run"};
    nlohmann::ordered_json json{{"end", kEnds[static_cast<size_t>(result.end)]},
                                {"step", result.step},
                                {"loss", result.loss},
                                {"folder", run.config.run.folder}};
    std::printf("%s\n", json.dump().c_str());
  }
  switch (result.end) {
    case RunEnd::kInterrupted:
      return stop_exit_code();
    case RunEnd::kTimeLimit:
      return kTimeLimitExitCode;
    default:
      return 0;
  }
}

}  // namespace strata::train
