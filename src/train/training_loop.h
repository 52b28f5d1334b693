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
#include "optim/schedule.h"
#include "program/executor.h"
#include "train/reporter.h"
#include "train/run_store.h"
#include "train/trainer.h"

namespace strata::train {

class TrainingLoop {
 public:
  // `changes` are what a resume changes in the configuration.
  TrainingLoop(config::RunConfig config, std::vector<config::Change> changes, models::ModelConfig model,
               std::optional<data::Tokenizer> tokenizer, config::RunData data, RunStore& store,
               FileSystem& files, const std::function<bool()>& stop);

  int64_t total_steps() const { return total_steps_; }
  // What the whole run takes of its sources.
  std::vector<config::SourcePlan> plan() const {
    return config::plan_sources(data_, samples_, total_steps_ * config_.training.global_batch_size);
  }

  // Fills the arena; returns the step that is done already.
  int64_t start(std::shared_ptr<const program::ProgramSet> set, const std::string& resume,
                bool accept_changes);

  TrainResult run();

  // A run that was killed between its last save and its end lacks what comes after the save.
  void complete();

 private:
  int64_t steps_with_data() const;

  // What the configuration does not say and a resume may not change unseen.
  void check_state(const TrainingState& state, bool accept_changes) const;

  std::string tokenizer_hash() const { return tokenizer_ ? to_hex(tokenizer_->hash()) : ""; }

  void finish(Reporter& reporter);

  RunEnd loop(Reporter& reporter);

  void train_step(int64_t step, data::Loader& loader);

  void evaluate_all();
  void evaluate_task(const config::TaskSet& set);

  void write_samples(Reporter& reporter);

  RunStore::Save to_save() const;
  double save(Reporter& reporter);

  const data::Tokenizer* tokenizer() const { return tokenizer_ ? &*tokenizer_ : nullptr; }

  config::RunConfig config_;
  std::vector<config::Change> changes_;
  models::ModelConfig model_;
  std::optional<data::Tokenizer> tokenizer_;
  config::RunData data_;
  RunStore& store_;
  FileSystem& files_;
  const std::function<bool()>& stop_;
  int64_t step_tokens_;
  data::SampleSource samples_;
  int64_t total_steps_;
  optim::ScheduleConfig schedule_;
  std::unique_ptr<program::Executor> executor_;
  bool elsewhere_ = false;  // resumed from a checkpoint that the user named
  int64_t step_ = 0;
  bool stop_seen_ = false;  // while a task was scored
  StepRecord record_;
  std::vector<std::pair<std::string, double>> evaluations_;  // the newest
};

}  // namespace strata::train
