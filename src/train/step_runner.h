// Runs training steps: loads a batch, runs the program's schedule, and collects the losses of all ranks.
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
#include "train/layer_statistics.h"
#include "train/rank_board.h"
#include "train/run_inputs.h"
#include "train/run_position.h"
#include "train/step_digests.h"
#include "train/step_record.h"

namespace strata::training {

class Injector;
class RecomputeCheck;

// What a step's update depends on besides the configuration.
struct StepSettings {
  double lr_factor = 1;
  double embedding_scale = 1;  // factor on the gradients of embeddings
  optim::GuardRules rules = {};
};

// All ranks construct one and call each function for the same step. Used by one thread; the loader it owns
// has another. DataError for unreadable samples, WorldError for lost ranks.
class StepRunner {
 public:
  // `executor` must outlive it. Starts loading the samples at `position`.
  StepRunner(const RunInputs& inputs, program::Executor& executor, const RunPosition& position);

  // Faults that act on the steps; nullptr: none.
  void inject(Injector* injector) { injector_ = injector; }
  // Shows what this rank does; it must outlive this object.
  void show_on(RankBoard& board) { board_ = &board; }
  // The training program of the newest step.
  size_t program() const { return program_; }
  // Weights have been written by other means than an update: the next step packs them.
  void weights_changed() { program_ = kNoProgram; }
  // After a change of the configuration, which a step that has started may depend on (log.layers).
  void changed() {
    schedule_ = config::schedule_of(inputs_.config);
    drop_started();
  }

  // Whether ranks check each other's computation, by recovery.recompute_check.
  void check(RecomputeCheck* check) { check_ = check; }

  // Runs the step after `position`, which may have moved anywhere. Calls `before_update` before weights and
  // optimizer states change. The record has no losses yet. `next`: the position after this step, whose micro-batches
  // may start before this step's numbers are read; nullptr: nothing may start.
  StepRecord run(const RunPosition& position, const StepSettings& settings,
                 const std::function<void()>& before_update, const RunPosition* next = nullptr);
  // Before anything else runs programs or writes values between two steps: the micro-batches that have started will run
  // again.
  void drop_started();
  // Runs the micro-batches of the step at `position` again; the first value of this rank that is NaN or
  // infinite. For all ranks together, at the end of a run.
  std::optional<ComputedValue> first_nonfinite(const RunPosition& position);
  // This rank's report on the step just run. The caller sets the flags and requests.
  RankReport report(const StepRecord& record);
  // Adds the reports of all ranks to the record.
  void take(const std::vector<RankReport>& all, StepRecord& record);
  // Measured since the start; part of the run's state.
  const NoiseState& noise() const { return noise_.state(); }
  void set_noise(const NoiseState& state) { noise_ = NoiseScale(state); }

 private:
  // A step whose micro-batches have started.
  struct Begun {
    StepRecord record;
    const data::SampleSource* samples = nullptr;
    std::vector<int64_t> terms;  // of each loss, over all ranks
    double at = 0;               // monotonic seconds
    const data::HostBatch* batch = nullptr;
  };
  bool has_begun(const RunPosition& position) const;
  Begun begin(const RunPosition& position);
  // Begins the next step, unless there is an error, such as samples that cannot be read.
  void begin_early(const RunPosition& position);
  void update(const Begun& step, const StepSettings& settings, const std::function<void()>& before_update);

  void read_from(std::shared_ptr<const data::SampleSource> samples);
  config::BatchPart part_of(int64_t batch) const;  // this rank's rows of a batch
  void take_program(const config::StepSize& size);
  AttentionScores read_scores() const;
  void run_micro_batches(const Begun& step);
  void run_action(int64_t step, size_t at, const data::HostBatch& batch, bool checks);
  // Number of layers that predict further tokens and had targets in this step.
  int64_t layers_with_terms() const;

  RunInputs inputs_;
  program::Executor& executor_;
  optim::ScheduleConfig schedule_;
  static constexpr size_t kNoProgram = static_cast<size_t>(-1);
  size_t program_ = config::
      kTrainProgram;  // of the last step, kNoProgram if its packed weights are old; all have the metrics in the same places
  program::Metric loss_sum_, token_count_, grad_norm_, param_norm_, score_clip_, balance_loss_sum_,
      router_z_loss_sum_, indexer_loss_sum_, indexer_share_sum_;
  std::vector<program::Metric> further_;  // sums of the losses of further tokens
  ExpertWatch experts_;
  Injector* injector_ = nullptr;
  RecomputeCheck* check_ = nullptr;
  RankBoard no_board_;
  RankBoard* board_ = &no_board_;
  std::optional<StatisticsWatch> statistics_;  // of program_
  NoiseScale noise_;
  std::shared_ptr<const data::SampleSource> samples_;
  std::unique_ptr<data::Loader> loader_;
  std::optional<Begun> begun_;
  double last_end_ = 0;         // when the numbers of the newest step were read
  std::vector<int64_t> terms_;  // terms of each loss of the newest step, over all ranks
  double seconds_waited_ = 0;   // for other ranks, since the start
};

}  // namespace strata::training
