#include "train/step_replayer.h"

#include <algorithm>

#include "base/error.h"
#include "program/initialize.h"
#include "program/update.h"
#include "train/resume.h"
#include "train/steering.h"

namespace strata::training {

StepReplayer::StepReplayer(const RunInputs& inputs, const RunStore& store, FileSystem& files,
                           std::shared_ptr<const program::ProgramSet> set)
    : config_(inputs.config),
      inputs_{config_, inputs.model, inputs.tokenizer, inputs.data, inputs.ranks},
      store_(store),
      executor_(std::make_unique<program::Executor>(std::move(set), config::make_device(inputs_.config),
                                                    inputs_.ranks)),
      position_(inputs_, {}),
      recovery_(inputs_.config.recovery),
      exchange_(inputs_.ranks.all()) {
  program::write_coordinates(*executor_);
  if (config_.debug.inject.empty()) return;
  disk_.emplace(files);
  injector_.emplace(inputs_, *executor_, *disk_, store_.folder(), unheard_);
}

void StepReplayer::go_to(int64_t step) {
  const std::optional<TrainingState> stored = store_.load_at_most(step, inputs_.model, *executor_);
  if (!stored) start_weights(inputs_, *executor_);
  const TrainingState state = stored.value_or(TrainingState{});
  journal_ = state.journal;
  if (const auto newer = store_.journal()) journal_ = *newer;
  apply_settings(journal_.settings(0, state.step), config_, position_);
  position_.continue_from(state);
  executor_->run(config::kTrainProgram, {program::Segment::kEncode});
  steps_ = std::make_unique<StepRunner>(inputs_, *executor_, position_);
  steps_->inject(injector_ ? &*injector_ : nullptr);
  while (position_.step() < step) {
    run();
    position_.advance();
  }
}

StepRecord StepReplayer::run() {
  const int64_t done = position_.step();
  if (apply_journal(journal_, config_, position_)) steps_->changed();
  if (injector_) injector_->before_step(done + 1);
  StepRecord record = steps_->run(position_, step_settings(journal_, recovery_, position_.step() + 1), [] {});
  const RankReport mine = steps_->report(record);
  steps_->take(exchange_.exchange(mine), record);
  return record;
}

void StepReplayer::restore(Snapshots& from, int64_t step) {
  from.restore(step);
  steps_->weights_changed();
}

TrainingState StepReplayer::state() const {
  return position_.state();
}

StepReplayer::SampleRange StepReplayer::samples_of(int64_t micro_batch) const {
  const int64_t batch = position_.size().sequences;
  const config::BatchPart part =
      config::batch_part(batch, inputs_.ranks.batch_part(), inputs_.ranks.batch_parts());
  int64_t first = part.first, count = part.rows;
  if (micro_batch >= 0) {
    const int64_t rows = *inputs_.config.training.micro_batch_size;
    first += micro_batch * rows;
    count = std::min(rows, part.first + part.rows - first);
  }
  // The last batch of bounded data may have empty rows.
  first += position_.next_sample();
  return {first, std::clamp<int64_t>(samples().total_samples() - first, 0, count)};
}

}  // namespace strata::training
