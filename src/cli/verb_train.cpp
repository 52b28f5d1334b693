// strata train
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/log.h"
#include "base/signals.h"
#include "cli/actions.h"
#include "cli/output.h"
#include "cli/run_inputs.h"
#include "cli/verbs.h"
#include "train/trainer.h"

namespace strata::cli {

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

// Where things are now, and how to go on.
void say_end(const train::TrainResult& result, const std::string& folder) {
  switch (result.end) {
    case train::RunEnd::kFinished:
      log_info("the model is in {0}/final; curves and samples are in {0}/index.html", folder);
      break;
    case train::RunEnd::kInterrupted:
      if (result.step > 0)
        log_info("stopped: step {} is saved in {}/checkpoints; the same command goes on from there",
                 result.step, folder);
      break;
    case train::RunEnd::kTimeLimit:
      log_info("time limit: step {} is saved in {}/checkpoints; start the same command again to go on",
               result.step, folder);
      break;
    case train::RunEnd::kDryRun:
      break;
  }
}

}  // namespace

int run_training(const TrainOptions& options) {
  check_ranks(options.ranks);
  train::RunOptions run;
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
  const train::TrainResult result = [&]() -> train::TrainResult {
    try {
      return train::train_run(run, stop_requested);
    } catch (const Interrupted&) {
      log_info("stopped before the first step; the same command starts again");
      return {train::RunEnd::kInterrupted, 0, 0};
    }
  }();
  say_end(result, run.config.run.folder);
  if (options.json) {
    static constexpr const char* kEnds[] = {"finished", "interrupted", "time_limit", "dry_run"};
    nlohmann::ordered_json json{{"end", kEnds[static_cast<size_t>(result.end)]},
                                {"step", result.step},
                                {"loss", result.loss},
                                {"folder", run.config.run.folder}};
    if (!result.program.empty()) json["fingerprint"] = result.program;
    print_out("{}\n", json.dump());
  }
  switch (result.end) {
    case train::RunEnd::kInterrupted:
      return stop_exit_code();
    case train::RunEnd::kTimeLimit:
      return kTimeLimitExitCode;
    default:
      return 0;
  }
}

void add_train(Verb root) {
  auto options = std::make_shared<TrainOptions>();
  auto resume = std::make_shared<std::string>("auto");
  Verb verb = root.verb("train", "Train a model; the same command goes on where a run was",
                        "strata train RUN.toml --set training.steps=2000");
  verb.option(
          "RUN.toml", options->inputs,
          "A configuration, or the folder of a run to go on with; or texts, or folders of data builds, to "
          "train on without one")
      .required();
  verb.sets(options->sets).suggest(configuration_keys());
  verb.option("--resume", *resume,
              "auto: go on where the run's folder stands; never: refuse a folder that holds a run; DIR: "
              "from that "
              "checkpoint")
      .type_name("auto|never|DIR")
      .suggest({"auto", "never"});
  verb.option("--ranks", options->ranks, "Ranks that share the work; more than 1: not yet in this version")
      .positive()
      .type_name("N");
  verb.flag("--accept-changes", options->accept_changes, "Resume although keys of the training changed");
  verb.flag("--dry-run", options->dry_run, "Check configuration, inputs, disk and plan, then stop");
  verb.json(options->json);
  verb.action([options, resume] {
    options->resume = *resume == "auto"    ? ResumeMode::kAuto
                      : *resume == "never" ? ResumeMode::kNever
                                           : ResumeMode::kFrom;
    if (options->resume == ResumeMode::kFrom) options->resume_from = *resume;
    return run_training(*options);
  });
}

}  // namespace strata::cli
