#include "train/training_loop.h"

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "comm/exchange.h"
#include "program/initialize.h"
#include "program/memory_report.h"
#include "train/evaluations.h"
#include "train/flops_meter.h"
#include "train/resume.h"
#include "train/run_save.h"
#include "train/start_report.h"
#include "train/step_runner.h"
#include "train/step_traces.h"
#include "train/verdict.h"

namespace strata::training {

TrainingLoop::TrainingLoop(const RunInputs& inputs, LoopOptions options)
    : config_(inputs.config),
      inputs_{config_, inputs.model, inputs.tokenizer, inputs.data, inputs.ranks},
      options_(std::move(options)),
      position_(inputs_, options_.likely.value_or(TrainingState{})),
      stop_text_(options_.store.checkpoints()) {}

int64_t TrainingLoop::start(std::shared_ptr<const program::ProgramSet> set, const std::string& resume,
                            bool accept_changes) {
  executor_ =
      std::make_unique<program::Executor>(std::move(set), config::make_device(inputs_.config), inputs_.ranks);
  program::write_coordinates(*executor_);
  const Resumed resumed = resume_run(inputs_, options_.store, *executor_, resume, accept_changes);
  if (resumed.change) options_.changes.push_back(*resumed.change);
  from_elsewhere_ = resumed.from_elsewhere;
  position_.continue_from(resumed.state);
  if (position_.is_reordered()) log_order(*position_.samples());
  if (from_elsewhere_ && inputs_.is_first()) options_.store.set_aside_after(position_.step());
  executor_->run(config::kTrainProgram, {program::Segment::kEncode});
  return position_.step();
}

TrainResult TrainingLoop::run() {
  const std::unique_ptr<Reporter> made = make_reporter();
  Reporter& reporter = *made;
  try {
    stop_text_.set(position_.step());
    const RunEnd end = loop(reporter);
    stop_text_.clear();
    return {end, position_.step(), record_.loss.value_or(std::numeric_limits<double>::quiet_NaN())};
  } catch (const WorldError& error) {
    // Shows the error on the run page if the disk can still be written.
    try {
      reporter.finish(observe::RunState::kFailed, error.what());
    } catch (const Error&) {
    }
    if (failed_) failed_(error);
    throw;
  } catch (const std::exception& error) {
    if (failed_) failed_(error);
    throw;
  }
}

void TrainingLoop::complete() {
  const auto metrics = observe::read_metrics(options_.store.folder() / "metrics.jsonl");
  const auto& events = metrics.events();
  if (std::any_of(events.begin(), events.end(), [&](const auto& event) {
        return event.event == "finish" && event.at_step == position_.step();
      })) {
    return;
  }
  const std::unique_ptr<Reporter> reporter = make_reporter();
  reporter->extension(extension());
  finish(*reporter, RunEnd::kFinished);
}

std::unique_ptr<Reporter> TrainingLoop::make_reporter() {
  if (!inputs_.is_first()) return std::make_unique<Reporter>();
  return std::make_unique<RunReporter>(options_.files, inputs_.config, *executor_, position_.total_steps(),
                                       position_.step(), options_.observer);
}

RunStore::Save TrainingLoop::save() const {
  return make_save(inputs_, *executor_, position_, record_, evaluations_);
}

void TrainingLoop::finish(Reporter& reporter, RunEnd end) {
  if (end == RunEnd::kFinished) {
    options_.store.write_final(save());
    reporter.event("finish", position_.step());
    reporter.finish(observe::RunState::kFinished);
    return;
  }
  const bool is_asked = end == RunEnd::kInterrupted;
  reporter.event(is_asked ? "interrupt" : "time_limit", position_.step());
  reporter.finish(observe::RunState::kInterrupted, is_asked ? "stopped by the user" : "time limit");
}

RunEnd TrainingLoop::loop(Reporter& reporter) {
  StepRunner steps(inputs_, *executor_, position_);
  StepExchange exchange(inputs_.ranks.all());
  report_start(reporter, inputs_, position_, *executor_, options_.changes);
  Stopping stopping(options_.stop, inputs_);
  Evaluations evaluations(inputs_, *executor_);
  FlopsMeter flops(inputs_, executor_->device(), position_);
  StepTraces traces(inputs_, options_.files, options_.store.folder(), *executor_);
  executor_->reset_timings();
  Saves saves(options_.files, options_.store, *executor_, inputs_.config.checkpoint.interval, reporter,
              [this](int64_t saved_step) { stop_text_.set(saved_step); });
  // A run that starts from a checkpoint elsewhere saves its own immediately.
  if (from_elsewhere_) saves.begin(save());
  saves.end();
  Steering steering(options_.files, inputs_, *executor_, config_);

  std::optional<RunEnd> end;
  while (!end) {
    const int64_t step = position_.step() + 1;
    traces.begin(step);
    record_ = steps.run(position_, [&] { saves.before_update(); });
    record_.checkpoint_seconds = saves.take_waited();

    // From here on all ranks decide alike, by the reports that they exchanged.
    RankReport mine = steps.report(record_);
    stopping.ask(mine);
    mine.wants_evaluation = evaluations.is_due(position_);
    mine.wants_save = saves.is_due(position_);
    mine.is_saving = saves.running();
    mine.is_steered = steering.is_asked();
    const std::vector<RankReport>& all = exchange.exchange(mine);
    steps.take(all, record_);
    stopping.hear(all);
    flops.add_to(record_, all.size(), position_.total_steps() - step);
    traces.end(step);

    if (verdict_on(record_) == Verdict::kDiverged) give_up(saves, reporter);
    position_.advance();
    reporter.total_steps(position_.total_steps());
    const bool is_last = position_.is_at_end();

    if (evaluations.has_any() && (all.front().wants_evaluation != 0 || is_last)) {
      record_.evaluations = evaluations_ = evaluations.measure(step, [&] { return stopping.ask_all(); });
      reporter.step(record_);
      for (const auto& [prompt, text] : evaluations.write_texts()) reporter.sample(step, prompt, text);
      stopping.ask_all();
    } else {
      reporter.step(record_);
    }

    end = is_last ? RunEnd::kFinished : stopping.end();
    if (!any(all, &RankReport::is_saving)) {
      saves.end();
      steering.saved(false);
    }
    SteeringEffects effects;
    if (all.front().is_steered != 0) effects = steer(steering, end.has_value(), reporter);
    if (!effects.changes.empty()) {
      steps.changed();
      evaluations.changed();
      saves.set_interval(config_.checkpoint.interval);
    }
    if (!end && effects.stop) end = RunEnd::kInterrupted;
    if (all.front().wants_save != 0 || effects.save || end) {
      reporter.sync();
      saves.begin(save());
    }
    if (end) {
      saves.end();
      steering.saved(true);
    }
  }
  finish(reporter, *end);
  return *end;
}

SteeringEffects TrainingLoop::steer(Steering& steering, bool ends, Reporter& reporter) {
  const std::string text = comm::broadcast_text(inputs_.ranks.all(), steering.poll(position_, ends));
  const SteeringEffects effects = steering.apply(text);
  const auto skips = [](const Steered& one) { return one.change.key == "data.skip"; };
  if (std::any_of(effects.changes.begin(), effects.changes.end(), skips))
    position_.continue_from(position_.state());
  if (!effects.changes.empty()) {
    reporter.changed();
    reporter.total_steps(position_.total_steps());
  }
  steering.confirm(effects, position_.step() + 1, reporter);
  return effects;
}

void TrainingLoop::give_up(Saves& saves, Reporter& reporter) const {
  const double loss = record_.loss.value_or(0);
  saves.end();
  reporter.event("diverged", record_.step, {{"loss", loss}, {"grad_norm", record_.grad_norm}});
  reporter.finish(observe::RunState::kFailed,
                  fmt::format("step {}: loss or gradient is not finite", record_.step));
  throw DivergedError(
      "[step {}] loss {} and gradient norm {} are not finite; the weights of step {} are untouched in "
      "memory and the last checkpoint on disk is good. Lower optimizer.lr, raise "
      "schedule.warmup_steps, or leave out the batch: data.skip = [[{}, {}]]",
      record_.step, loss, record_.grad_norm, position_.step(), record_.first_sample, position_.last_sample());
}

}  // namespace strata::training
