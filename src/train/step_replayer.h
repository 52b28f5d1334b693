// Takes a run's steps again, from a checkpoint or from the start, without writing anything.
#pragma once

#include <memory>
#include <string>

#include "program/executor.h"
#include "train/injector.h"
#include "train/journal.h"
#include "train/rank_report.h"
#include "train/recovery.h"
#include "train/reporter.h"
#include "train/run_position.h"
#include "train/run_store.h"
#include "train/snapshots.h"
#include "train/step_runner.h"

namespace strata::training {

// All ranks construct one and call its functions at the same points, each on one thread.
class StepReplayer {
 public:
  // All objects that the arguments refer to must outlive it.
  StepReplayer(const RunInputs& inputs, const RunStore& store, FileSystem& files,
               std::shared_ptr<const program::ProgramSet> set);

  // Until this many steps are done: from the newest good checkpoint of at most this step, else from the start
  // of the run. Call it once, first.
  void go_to(int64_t step);
  // The next step, as the run made it; the position stays before it.
  StepRecord run();
  // Puts the state back to that of a snapshot at the current position.
  void restore(Snapshots& from, int64_t step);
  TrainingState state() const;

  program::Executor& executor() { return *executor_; }
  size_t program() const { return steps_->program(); }
  // The samples of a micro-batch of the next step on this rank, or of its part of the whole step (-1), as
  // samples() numbers them.
  struct SampleRange {
    int64_t first = 0, count = 0;
  };
  SampleRange samples_of(int64_t micro_batch) const;
  const data::SampleSource& samples() const { return *position_.samples(); }

 private:
  config::RunConfig config_;  // with the settings of the journal; inputs_ refers to it
  RunInputs inputs_;
  const RunStore& store_;
  std::unique_ptr<program::Executor> executor_;
  RunPosition position_;
  Journal journal_;
  Recovery recovery_;
  Reporter unheard_;
  std::optional<InjectedDisk> disk_;
  std::optional<Injector> injector_;
  std::unique_ptr<StepRunner> steps_;
  StepExchange exchange_;
};

}  // namespace strata::training
