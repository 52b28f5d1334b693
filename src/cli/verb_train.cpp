// strata train

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "base/signals.h"
#include "cli/actions.h"
#include "cli/output.h"

#include "cli/verbs.h"
#include "library/run_inputs.h"
#include "library/run_training.h"

namespace strata::cli {

namespace {

// Prints where the results are, and how to continue.
void report_end(const training::TrainResult& result, const std::string& folder) {
  switch (result.end) {
    case training::RunEnd::kFinished:
      log_info("the model is in {0}/final; curves and samples are in {0}/index.html", folder);
      break;
    case training::RunEnd::kInterrupted:
      if (result.step > 0)
        log_info("stopped: step {} is saved in {}/checkpoints; run the same command again to resume",
                 result.step, folder);
      break;
    case training::RunEnd::kTimeLimit:
      log_info("time limit: step {} is saved in {}/checkpoints; run the same command again to resume",
               result.step, folder);
      break;
    case training::RunEnd::kDryRun:
      break;
  }
}

}  // namespace

int run_training(const TrainOptions& options) {
  std::string folder;
  const auto read = [&] {
    training::RunOptions run;
    run.config = library::read_command_config(options.inputs, options.sets);
    folder = run.config.run.folder;
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
    return run;
  };
  const training::TrainResult result = [&]() -> training::TrainResult {
    try {
      return library::train_on_ranks(read, options.ranks, stop_requested);
    } catch (const Interrupted&) {
      log_info("stopped before the first step; run the same command again to start over");
      return {training::RunEnd::kInterrupted, 0, 0};
    }
  }();
  if (result.rank == 0) report_end(result, folder);
  if (options.json && result.rank == 0) {
    static constexpr const char* kEnds[] = {"finished", "interrupted", "time_limit", "dry_run"};
    nlohmann::ordered_json json{{"end", kEnds[static_cast<size_t>(result.end)]},
                                {"step", result.step},
                                {"loss", result.loss},
                                {"folder", folder}};
    if (!result.program.empty()) json["fingerprint"] = result.program;
    print_out("{}\n", dump_json(json));
  }
  switch (result.end) {
    case training::RunEnd::kInterrupted:
      // strata stop ends a run without a signal.
      return stop_exit_code() != 0 ? stop_exit_code() : kInterruptedExitCode;
    case training::RunEnd::kTimeLimit:
      return kTimeLimitExitCode;
    default:
      return 0;
  }
}

void add_train(Verb root) {
  auto options = std::make_shared<TrainOptions>();
  auto resume = std::make_shared<std::string>("auto");
  Verb verb = root.verb("train", "Train a model; the same command resumes a stopped run",
                        "strata train RUN.toml --set training.steps=2000");
  verb.option("RUN.toml", options->inputs,
              "A configuration, or the folder of a run to resume; or texts, or folders of data builds, to "
              "train on without one")
      .required();
  verb.sets(options->sets).suggest(configuration_keys());
  verb.option(
          "--resume", *resume,
          "auto: resume the run in its folder, if any; never: reject a folder that contains a run; DIR: resume "
          "from that checkpoint")
      .type_name("auto|never|DIR")
      .suggest({"auto", "never"});
  verb.option("--ranks", options->ranks,
              "Ranks that share the work as threads of this process; processes are started with mpirun -n N")
      .positive()
      .type_name("N");
  verb.flag("--accept-changes", options->accept_changes,
            "Resume although keys have changed that affect training");
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
