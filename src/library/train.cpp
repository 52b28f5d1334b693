#include "strata/train.h"

#include <cstdlib>

#include "base/error.h"
#include "base/log.h"
#include "base/signals.h"
#include "comm/launcher.h"
#include "library/config_impl.h"
#include "library/plan_impl.h"
#include "library/run_training.h"

namespace strata {
namespace {

StepReport report_of(const training::StepRecord& record) {
  return {.step = record.step,
          .loss = record.loss,
          .grad_norm = record.grad_norm,
          .lr = record.lr,
          .tokens = record.tokens,
          .seconds = record.step_seconds,
          .evaluations = record.evaluations};
}

training::RunObserver observer_of(const TrainCallbacks& callbacks) {
  training::RunObserver observer{
      .step = {}, .sample = callbacks.sample, .log = [](LogLevel, std::string_view) {}};
  if (callbacks.step) {
    observer.step = [step = callbacks.step](const training::StepRecord& record) { step(report_of(record)); };
  }
  if (callbacks.log) observer.log = callbacks.log;
  return observer;
}

// Ranks of a plan that are threads of this process: one if a launcher started the processes.
int64_t threads_for(int64_t ranks) {
  const auto launched = comm::launched_rank([](const char* name) { return std::getenv(name); });
  if (!launched || launched->size == 1) return ranks;
  if (launched->size == ranks) return 1;
  throw ConfigError("[ranks] the plan has {}, but {} started {} processes; plan for {}", ranks,
                    launched->launcher, launched->size, launched->size);
}

}  // namespace

TrainResult train(const Plan& plan, const TrainCallbacks& callbacks, const TrainOptions& options) {
  const LogSink lines(callbacks.log);
  const config::RunConfig& asked = plan.impl().asked.impl().config;
  const auto read = [&] {
    training::RunOptions run;
    run.config = asked;
    run.resume = options.resume;
    run.accept_changes = options.accept_changes;
    run.dry_run = options.dry_run;
    run.observer = observer_of(callbacks);
    return run;
  };
  TrainResult result{.folder = asked.run.folder};
  try {
    const training::TrainResult made = library::train_on_ranks(
        read, threads_for(plan.impl().ranks), callbacks.stop ? callbacks.stop : [] { return false; });
    result.end = made.end;
    result.step = made.step;
    result.loss = made.loss;
    result.program = made.program;
    result.rank = made.rank;
  } catch (const Interrupted&) {  // before the first step
    result.end = RunEnd::kInterrupted;
  }
  return result;
}

}  // namespace strata
