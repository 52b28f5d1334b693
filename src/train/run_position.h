// The position of a run: completed steps, tokens and samples, and the order of the following samples.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "config/data_plan.h"
#include "config/ramp.h"
#include "data/samples/sample_source.h"
#include "train/run_inputs.h"
#include "train/run_store.h"

namespace strata::training {

// Identical on all ranks. Used by one thread; other threads may read the samples. Throws as SampleSource does
// if the order cannot be made.
class RunPosition {
 public:
  // `state`: the current position; default: before the first step of a new run.
  RunPosition(const SampleInputs& inputs, const TrainingState& state);
  RunPosition(const RunInputs& inputs, const TrainingState& state)
      : RunPosition(inputs.of_samples(), state) {}

  // Moves to the position of `state`, forward or backward. Makes a new order of samples; it begins at the
  // state's next sample if a setting that determines the order has changed.
  void continue_from(const TrainingState& state);
  // Moves on by one step.
  void advance();
  // Goes on at this global sample, in the order of samples that is in use.
  void jump_to(int64_t next_sample);

  int64_t step() const { return step_; }  // completed
  int64_t total_steps() const { return total_steps_; }
  bool is_at_end() const { return step_ >= total_steps_; }
  int64_t tokens() const { return tokens_; }  // trained on, without padding
  // Of the next step.
  config::StepSize size() const { return ramps_.at(tokens_); }
  // From now on: the batch of a run where it follows the noise scale.
  void set_batch(int64_t sequences);
  // Tokens of the next step.
  int64_t next_tokens() const;
  int64_t next_sample() const { return trained_; }           // excluding samples in data.skip
  int64_t first_sample() const { return global(trained_); }  // including them, as in last_sample()
  int64_t last_sample() const { return global(trained_ + batch() - 1); }

  // Shared with readers, which keep their order when the position gets a new one.
  const std::shared_ptr<const data::SampleSource>& samples() const { return samples_; }
  // Whether the current order began here because a setting changed.
  bool is_reordered() const { return reordered_; }

  // The share of each source in the whole run.
  std::vector<config::SourcePlan> plan() const;
  // The settings that extend the run beyond total_steps().
  std::string extension() const;
  // The part of a checkpoint's state that is known here; the argument of continue_from().
  TrainingState state() const;

 private:
  int64_t batch() const { return size().sequences; }
  int64_t global(int64_t trained) const { return samples_->skip().global_of(trained); }
  void make_order(data::DataOrigin origin);
  void count_steps();
  int64_t steps_asked_for() const;
  int64_t steps_with_data() const;  // INT64_MAX for unbounded data

  SampleInputs inputs_;
  config::Ramps ramps_;
  std::shared_ptr<const data::SampleSource> samples_;
  bool reordered_ = false;
  int64_t total_steps_ = 0;
  int64_t step_ = 0;
  int64_t tokens_ = 0;
  int64_t samples_done_ = 0;  // in the whole run
  int64_t trained_ = 0;       // number of the next sample, excluding those in data.skip
};

}  // namespace strata::training
