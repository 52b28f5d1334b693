// strata train
#include <nlohmann/json.hpp>

#include <cstdio>

#include "base/error.h"
#include "base/signals.h"
#include "train/command_config.h"
#include "train/commands.h"
#include "train/trainer.h"

namespace strata::train {

int run_training(const TrainOptions& options) {
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
  const TrainResult result = train_run(run, stop_requested);
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
