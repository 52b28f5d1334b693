// The loop of a run, from the first step to the last: batches in, updates, and what is due between them.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "config/data_plan.h"
#include "config/resolve.h"
#include "data/samples/loader.h"
#include "evaluation/routing.h"
#include "optim/schedule.h"
#include "program/executor.h"
#include "train/expert_load.h"
#include "train/reporter.h"
#include "train/run_store.h"
#include "train/saves.h"
#include "train/trainer.h"

namespace strata::train {

class TrainingLoop {
 public:
  // `changes` are what a resume changes in the configuration; `likely` is the state that start() is expected
  // to find, from which the plan before it is told.
  TrainingLoop(config::RunConfig config, std::vector<config::Change> changes, models::ModelConfig model,
               std::optional<data::Tokenizer> tokenizer, config::RunData data, RunStore& store,
               FileSystem& files, const std::function<bool()>& stop,
               const std::optional<TrainingState>& likely, const program::Ranks& ranks);

  int64_t total_steps() const { return total_steps_; }
  // What the whole run takes of its sources.
  std::vector<config::SourcePlan> plan() const {
    return config::plan_sources(data_, *samples_,
                                trained_ + (total_steps_ - step_) * config_.training.global_batch_size);
  }
  // The settings with which a run that has made all its steps goes on.
  std::string extension() const;

  // Fills the arena; returns the step that is done already.
  int64_t start(std::shared_ptr<const program::ProgramSet> set, const std::string& resume,
                bool accept_changes);

  // Where a signal ends this process by force, it says which step the same command goes on from: always, or
  // where the process is gone that says it otherwise (set_stop_text). Not called: it says nothing.
  void tell_stops(int64_t stands_in_for) { stop_speaker_ = stands_in_for; }

  // Called with an error of run() before the memory goes in which other ranks read and write.
  void on_failure(std::function<void(const std::exception&)> failed) { failed_ = std::move(failed); }

  TrainResult run();

  // A run that was killed between its last save and its end lacks what comes after the save.
  void complete();

 private:
  // Takes up the run where `state` left it.
  void stand_at(const TrainingState& state);
  void tell_order() const;
  int64_t steps_asked_for() const;
  int64_t steps_with_data() const;  // at most INT64_MAX, where the data have no end

  // What the configuration does not say and a resume may not change unseen.
  void check_state(const TrainingState& state, bool accept_changes);

  std::string tokenizer_hash() const { return tokenizer_ ? to_hex(tokenizer_->hash()) : ""; }

  void finish(Reporter& reporter);

  RunEnd loop(Reporter& reporter);
  void set_stop_text(int64_t saved_step) const;

  void train_step(int64_t step, data::Loader& loader, Saves& saves);

  // What this rank tells the others of the step that it has made; and what all told.
  StepNews news();
  void take_losses(const std::vector<StepNews>& all);
  // Layers that predict further tokens and had some to predict in this step.
  int64_t layers_with_terms() const;

  evaluation::EvalResult evaluate_set(const data::EvalWindows& windows,
                                      std::vector<evaluation::LayerCounts>& routing);
  void evaluate_all();
  void evaluate_task(const config::TaskSet& set);

  void write_samples(Reporter& reporter);

  RunStore::Save to_save() const;

  // The first rank tells of the run.
  bool is_first() const { return ranks_.is_first(); }
  std::unique_ptr<Reporter> make_reporter();
  // This rank's rows of a batch.
  config::BatchPart part_of_batch() const;

  const data::Tokenizer* tokenizer() const { return tokenizer_ ? &*tokenizer_ : nullptr; }

  config::RunConfig config_;
  std::vector<config::Change> changes_;
  models::ModelConfig model_;
  std::optional<data::Tokenizer> tokenizer_;
  config::RunData data_;
  RunStore& store_;
  FileSystem& files_;
  const std::function<bool()>& stop_;
  const program::Ranks& ranks_;
  int64_t step_tokens_;  // places of a step's rows
  // The order of samples, made anew where a resume changed what decides it.
  std::unique_ptr<data::SampleSource> samples_;
  bool reordered_ = false;
  int64_t total_steps_ = 0;
  optim::ScheduleConfig schedule_;
  std::unique_ptr<program::Executor> executor_;
  std::optional<ExpertWatch> experts_;  // made at the first step
  bool elsewhere_ = false;              // resumed from a checkpoint that the user named
  int64_t step_ = 0;
  int64_t tokens_ = 0;        // that were trained on
  int64_t samples_done_ = 0;  // of the whole run
  int64_t trained_ = 0;       // the number of the next sample, those of data.skip left out
  std::function<void(const std::exception&)> failed_;
  std::optional<int64_t> stop_speaker_;  // of tell_stops()
  bool stop_seen_ = false;               // while a task was scored
  std::vector<int64_t> terms_;  // of the step's losses, of all ranks, where they have terms of their own
  double seconds_waited_ = 0;   // for other ranks, since the start
  StepRecord record_;
  std::vector<std::pair<std::string, double>> evaluations_;  // the newest
};

}  // namespace strata::train
