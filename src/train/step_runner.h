// Runs training steps: a batch in, the program's script, the losses of all ranks out.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "config/layout.h"
#include "data/samples/loader.h"
#include "optim/schedule.h"
#include "program/metrics.h"
#include "train/expert_load.h"
#include "train/run_inputs.h"
#include "train/run_position.h"
#include "train/step_record.h"

namespace strata::train {

// All ranks make one and call each function for the same step. Used by one thread; the loader that it owns
// has another. Throws DataError for unreadable samples and WorldError for ranks that are lost.
class StepRunner {
 public:
  // `executor` must outlive it. Begins to load the samples at `position`.
  StepRunner(const RunInputs& inputs, program::Executor& executor, const RunPosition& position);

  // Makes the step that follows `position`, wherever that has been moved to. `before_update` is called before
  // weights and optimizer states change. The record has no losses yet.
  StepRecord run(const RunPosition& position, const std::function<void()>& before_update);
  // What this rank reports to the others of the step just made. Flags and wishes are left to the caller.
  RankReport news(const StepRecord& record);
  // Adds to the record what all ranks reported.
  void take(const std::vector<RankReport>& all, StepRecord& record) const;

 private:
  void read_from(std::shared_ptr<const data::SampleSource> samples);
  void run_script(int64_t step, const data::HostBatch& batch, const std::function<void()>& before_update);
  // Layers that predict further tokens and had some to predict in this step.
  int64_t layers_with_terms() const;

  RunInputs inputs_;
  program::Executor& executor_;
  optim::ScheduleConfig schedule_;
  config::BatchPart part_;  // this rank's rows of a batch
  program::Metric loss_sum_, token_count_, grad_norm_, param_norm_, balance_loss_sum_, router_z_loss_sum_;
  std::vector<program::Metric> further_;  // sums of the losses of further tokens
  ExpertWatch experts_;
  std::shared_ptr<const data::SampleSource> samples_;
  std::unique_ptr<data::Loader> loader_;
  std::vector<int64_t> terms_;  // of the step's losses, of all ranks, for losses with terms of their own
  double seconds_waited_ = 0;   // for other ranks, since the start
};

}  // namespace strata::train
