// The position of a run: completed steps, tokens and samples, and the order of the samples that follow.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "config/data_plan.h"
#include "data/samples/sample_source.h"
#include "train/run_inputs.h"
#include "train/run_store.h"

namespace strata::train {

// The same on all ranks. Used by one thread; the samples may be read by others. Throws what SampleSource
// throws for an order that cannot be made.
class RunPosition {
 public:
  // `state`: where it stands; empty: before the first step of a new run.
  RunPosition(const RunInputs& inputs, const TrainingState& state);

  // Moves to where `state` was taken, in either direction. Makes a new order of samples, which begins at the
  // state's next sample if a setting that decides the order has changed.
  void continue_from(const TrainingState& state);
  // Moves past the next step.
  void advance();

  int64_t step() const { return step_; }  // completed
  int64_t total_steps() const { return total_steps_; }
  bool is_at_end() const { return step_ >= total_steps_; }
  int64_t tokens() const { return tokens_; }  // trained on, without padding
  // Of the next step.
  int64_t next_tokens() const;
  int64_t next_sample() const { return trained_; }           // without those of data.skip
  int64_t first_sample() const { return global(trained_); }  // including them, as are the next two
  int64_t last_sample() const { return global(trained_ + batch() - 1); }

  // Shared with readers, which keep the order that they read when the position gets a new one.
  const std::shared_ptr<const data::SampleSource>& samples() const { return samples_; }
  // Whether the newest order began here because a setting has changed.
  bool is_reordered() const { return reordered_; }

  // The share of each source in the whole run.
  std::vector<config::SourcePlan> plan() const;
  // The settings that extend the run beyond total_steps().
  std::string extension() const;
  // The part of a checkpoint's state that is known here: continue_from() continues from it.
  TrainingState state() const;

 private:
  int64_t batch() const { return inputs_.config.training.global_batch_size; }
  int64_t global(int64_t trained) const { return samples_->skip().global_of(trained); }
  void make_order(data::DataOrigin origin);
  void count_steps();
  int64_t steps_asked_for() const;
  int64_t steps_with_data() const;  // at most INT64_MAX, for data without an end

  RunInputs inputs_;
  std::shared_ptr<const data::SampleSource> samples_;
  bool reordered_ = false;
  int64_t total_steps_ = 0;
  int64_t step_ = 0;
  int64_t tokens_ = 0;
  int64_t samples_done_ = 0;  // of the whole run
  int64_t trained_ = 0;       // the number of the next sample, without those of data.skip
};

}  // namespace strata::train
