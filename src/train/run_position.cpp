#include "train/run_position.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <utility>

namespace strata::training {

RunPosition::RunPosition(const SampleInputs& inputs, const TrainingState& state)
    : inputs_(inputs), ramps_(inputs.config) {
  continue_from(state);
}

void RunPosition::set_batch(int64_t sequences) {
  ramps_ = config::Ramps(inputs_.config, sequences);
  count_steps();
}

void RunPosition::make_order(data::DataOrigin origin) {
  samples_ = std::make_shared<data::SampleSource>(
      inputs_.data.sources,
      config::sample_options(inputs_.config, inputs_.model, inputs_.tokenizer, std::move(origin)));
}

void RunPosition::continue_from(const TrainingState& state) {
  step_ = state.step;
  tokens_ = state.tokens;
  samples_done_ = state.samples;
  make_order(state.origin);
  reordered_ = state.next_sample && samples_->fingerprint() != state.order;
  if (reordered_) make_order({state.step, *state.next_sample, state.sources});
  trained_ = state.next_sample ? samples_->skip().trained_before(*state.next_sample) : state.samples;
  count_steps();
}

void RunPosition::advance() {
  // The last batch of bounded data may have empty rows.
  const int64_t samples = std::min(batch(), samples_->total_samples() - trained_);
  tokens_ += next_tokens();
  ++step_;
  trained_ += samples;
  samples_done_ += samples;
  // Partly filled rows hold more or fewer tokens than the average.
  if ((inputs_.config.training.tokens || ramps_.changes()) && samples_->filled() < 1) count_steps();
}

void RunPosition::jump_to(int64_t next_sample) {
  trained_ = samples_->skip().trained_before(next_sample);
  count_steps();
}

int64_t RunPosition::next_tokens() const {
  return samples_->tokens(trained_, batch());
}

void RunPosition::count_steps() {
  total_steps_ = std::min(steps_asked_for(), steps_with_data());
}

int64_t RunPosition::steps_asked_for() const {
  const auto& training = inputs_.config.training;
  if (!training.tokens) return training.steps;
  return step_ + ramps_.steps(tokens_, {.tokens = *training.tokens}, samples_->filled());
}

int64_t RunPosition::steps_with_data() const {
  const int64_t all = samples_->total_samples();
  if (all == data::Mixture::kUnbounded) return std::numeric_limits<int64_t>::max();
  return step_ + ramps_.steps(tokens_, {.samples = all - trained_}, samples_->filled());
}

std::vector<config::SourcePlan> RunPosition::plan() const {
  return config::plan_sources(
      inputs_.data, *samples_,
      trained_ + ramps_.samples(tokens_, {.steps = total_steps_ - step_}, samples_->filled()));
}

std::string RunPosition::extension() const {
  const auto& training = inputs_.config.training;
  if (steps_with_data() <= steps_asked_for()) {
    return fmt::format("--set data.epochs={} --accept-changes", inputs_.config.data.epochs.value_or(1) + 1);
  }
  if (training.tokens) return fmt::format("--set training.tokens={} --accept-changes", 2 * *training.tokens);
  return fmt::format("--set training.steps={} --accept-changes", 2 * training.steps);
}

TrainingState RunPosition::state() const {
  TrainingState state;
  state.step = step_;
  state.samples = samples_done_;
  state.tokens = tokens_;
  // The sample after the last one trained on, which may be skipped: a range added to data.skip later may
  // begin between it and the next sample to train on.
  state.next_sample = trained_ > 0 ? global(trained_ - 1) + 1 : 0;
  state.order = samples_->fingerprint();
  state.origin = samples_->options().origin;
  state.sources = samples_->positions(*state.next_sample);
  return state;
}

}  // namespace strata::training
