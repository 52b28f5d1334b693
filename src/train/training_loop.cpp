#include "train/training_loop.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/log.h"
#include "comm/exchange.h"
#include "device/open/tested.h"
#include "program/initialize.h"
#include "program/memory_report.h"
#include "program/update.h"
#include "train/evaluations.h"
#include "train/flops_meter.h"
#include "train/injector.h"
#include "train/memory_folder.h"
#include "train/recompute_check.h"
#include "train/replicas.h"
#include "train/resume.h"
#include "train/run_save.h"
#include "train/start_report.h"
#include "train/step_runner.h"
#include "train/step_traces.h"

namespace strata::training {

TrainingLoop::TrainingLoop(const RunInputs& inputs, LoopOptions options)
    : config_(inputs.config),
      inputs_{config_, inputs.model, inputs.tokenizer, inputs.data, inputs.ranks},
      options_(std::move(options)),
      position_(inputs_, options_.likely.value_or(TrainingState{})),
      stop_text_(options_.store.checkpoints()),
      recovery_(inputs_.config.recovery) {}

int64_t TrainingLoop::start(std::shared_ptr<const program::ProgramSet> set, const std::string& resume,
                            bool accept_changes) {
  const std::shared_ptr<device::Device> device = config::make_device(inputs_.config);
  if (inputs_.is_first() && device->is_asynchronous() && !device::is_tested(*device)) {
    log_warning("{} has not been checked with this version; run strata doctor --self-test once to do so",
                device->spec().name);
  }
  executor_ = std::make_unique<program::Executor>(std::move(set), device, inputs_.ranks);
  program::write_coordinates(*executor_);
  // Faults of the disk are not faults of memory.
  copies_.emplace(options_.disk != nullptr ? options_.disk->under() : options_.files, options_.store.folder(),
                  inputs_, *executor_, options_.copies);
  const Resumed resumed = resume_run(inputs_, options_.store, *executor_, *copies_, resume, accept_changes,
                                     options_.may_use_copies);
  if (resumed.change) options_.changes.push_back(*resumed.change);
  from_elsewhere_ = resumed.from_elsewhere;
  from_copies_ = resumed.from_copies;
  journal_ = resumed.state.journal;
  // The folder's journal may be newer: a run that was killed takes the steps that it had taken.
  if (const auto newer = options_.store.journal(); newer && !from_elsewhere_ && resumed.state.step > 0)
    journal_ = *newer;
  // Settings given now replace those made during the run.
  for (const config::Change& change : options_.changes) {
    if (!journal_.sets(change.key)) continue;
    journal_.add({.kind = Effect::Kind::kSet,
                  .step = resumed.state.step,
                  .key = change.key,
                  .value = change.after,
                  .by = "resume"});
  }
  apply_settings(journal_.settings(0, resumed.state.step), config_, position_);
  position_.continue_from(resumed.state);
  take_noise(resumed.state);
  if (position_.is_reordered()) log_order(*position_.samples());
  if (from_elsewhere_ && inputs_.is_first()) options_.store.set_aside_after(position_.step());
  executor_->run(config::kTrainProgram, {program::Segment::kEncode});
  return position_.step();
}

TrainResult TrainingLoop::run() {
  const std::unique_ptr<Reporter> made = make_reporter();
  Reporter& reporter = *made;
  try {
    stop_text_.set(from_copies_ ? options_.store.newest_checkpoint() : position_.step());
    const RunEnd end = loop(reporter);
    stop_text_.clear();
    return {end, position_.step(), record_.loss.value_or(std::numeric_limits<double>::quiet_NaN())};
  } catch (const WorldError& found) {
    const WorldError error("{}; {}", found.what(), where_it_resumes());
    // Shows the error on the run page if the disk can still be written.
    try {
      reporter.finish(observe::RunState::kFailed, error.what());
    } catch (const Error&) {
    }
    if (failed_) failed_(error);
    throw error;
  } catch (const std::exception& error) {
    if (failed_) failed_(error);
    throw;
  }
}

std::string TrainingLoop::where_it_resumes() const {
  // The newest one that can be read: a save may have ended after the loop has.
  const std::optional<TrainingState> saved = options_.store.likely_state("auto");
  if (!saved || saved->step == 0) return "nothing is saved yet; the same command starts over";
  return fmt::format("step {} is saved in {}; run the same command again to resume", saved->step,
                     options_.store.checkpoints().string());
}

void TrainingLoop::complete() {
  const auto metrics = observe::read_metrics(options_.store.folder() / "metrics.jsonl");
  const auto& events = metrics.events();
  if (std::any_of(events.begin(), events.end(), [&](const auto& event) {
        return event.event == "finish" && event.at_step == position_.step();
      })) {
    return copies_->remove();
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
  RunStore::Save save = make_save(inputs_, *executor_, position_, record_, evaluations_, journal_);
  save.state.noise = noise_;
  if (noise_ramp_) save.state.noise_ramp = noise_ramp_->state().dump();
  return save;
}

void TrainingLoop::finish(Reporter& reporter, RunEnd end) {
  options_.board.enter(RankPhase::kExit, position_.step());
  if (end == RunEnd::kFinished) {
    options_.store.write_final(save());
    copies_->remove();
    reporter.event("finish", position_.step());
    reporter.finish(observe::RunState::kFinished);
    leave_memory();
    return;
  }
  copies_->remove();
  const bool is_asked = end == RunEnd::kInterrupted;
  reporter.event(is_asked ? "interrupt" : "time_limit", position_.step());
  reporter.finish(observe::RunState::kInterrupted, is_asked ? "stopped by the user" : "time limit");
  leave_memory();
}

void TrainingLoop::leave_memory() {
  options_.board.remove();
  // Those of a launched attempt that was killed, if this start is not launched.
  const Path& run = options_.store.folder();
  if (inputs_.ranks.world().local_rank() == 0 && is_own_memory_folder(run))
    remove_old_boards(memory_folder(run));
}

RunEnd TrainingLoop::loop(Reporter& reporter) {
  StepRunner steps(inputs_, *executor_, position_);
  StepExchange exchange(inputs_.ranks.all());
  const ReplicaCheck replicas(inputs_, *executor_);
  RecomputeCheck recompute(inputs_, *executor_);
  steps.check(&recompute);
  report_start(reporter, inputs_, position_, *executor_, options_.changes, from_copies_);
  if (copies_->makes_any()) reporter.fact("copies in memory", copies_->in_words());
  for (const CopyDamage& damage : copies_->damage()) {
    report_corruption({.where = "copy",
                       .found_by = "digest",
                       .tensor = damage.value,
                       .rank = static_cast<int>(damage.rank)},
                      damage.step > 0 ? damage.step : position_.step(), reporter);
  }
  Stopping stopping(options_.stop, inputs_);
  Evaluations evaluations(inputs_, *executor_);
  FlopsMeter flops(inputs_, executor_->device(), position_);
  StepTraces traces(inputs_, options_.files, options_.store.folder(), *executor_);
  executor_->reset_timings();
  std::optional<Injector> injector;
  if (options_.disk != nullptr)
    injector.emplace(inputs_, *executor_, *options_.disk, options_.store.folder(), reporter);
  injector_ = injector ? &*injector : nullptr;
  steps.inject(injector_);
  steps.show_on(options_.board);
  steps.set_noise(noise_);
  Saves saves(options_.files, options_.store, *executor_, inputs_.config.checkpoint.interval, reporter,
              [&](int64_t saved_step) {
                stop_text_.set(saved_step);
                if (injector) injector->after_save(saved_step);
              });
  // A run that starts from a checkpoint elsewhere saves its own immediately.
  if (from_elsewhere_) saves.begin(save());
  saves.end();
  const bool in_memory =
      comm::min_over(inputs_.ranks.all(), has_snapshots(inputs_.config.recovery, executor_->set()) ? 1 : 0) !=
      0;
  snapshots_.emplace(*executor_, in_memory ? snapshots_kept(inputs_.config.recovery) : 0);
  snapshots_->take(save().state);
  Steering steering(options_.files, inputs_, *executor_, config_);

  const auto changed = [&] {
    steps.changed();
    evaluations.changed();
    saves.set_interval(config_.checkpoint.interval);
    reporter.changed();
    reporter.total_steps(position_.total_steps());
  };
  std::optional<RunEnd> end;
  while (!end) {
    const int64_t step = position_.step() + 1;
    options_.board.enter(RankPhase::kData, step);
    if (apply_settings(journal_.settings(position_.step(), position_.step()), config_, position_)) changed();
    if (const auto sample = journal_.jump_at(position_.step())) position_.jump_to(*sample);
    traces.begin(step);
    if (injector) {
      saves.before_update();  // weights may change here
      injector->before_step(step);
    }
    // If the device is asynchronous, the next step's micro-batches start before this step's numbers are read, unless
    // something else has to happen between the two.
    std::optional<RunPosition> next;
    if (executor_->device().is_asynchronous() && !injector && step < position_.total_steps() &&
        !(evaluations.has_any() && evaluations.is_due(position_)) && !traces.is_due(step + 1)) {
      next.emplace(position_);
      next->advance();
    }
    record_ = steps.run(
        position_, step_settings(journal_, recovery_, step), [&] { saves.before_update(); },
        next ? &*next : nullptr);
    record_.checkpoint_seconds = saves.take_waited();
    record_.copy_seconds = copies_->take_waited();

    // From here on all ranks decide alike, by the reports that they exchanged.
    RankReport mine = steps.report(record_);
    stopping.ask(mine);
    mine.wants_evaluation = evaluations.is_due(position_);
    mine.wants_save = saves.is_due(position_);
    mine.wants_copy = copies_->is_due(position_);
    mine.is_saving = saves.running();
    mine.is_steered = steering.is_asked();
    options_.board.enter(RankPhase::kReduce, step);
    const std::vector<RankReport>& all = exchange.exchange(mine);
    steps.take(all, record_);
    stopping.hear(all);
    flops.add_to(record_, all.size(), position_.total_steps() - step);
    traces.end(step);

    const bool is_kept = all.front().wants_save != 0 || all.front().wants_copy != 0 ||
                         is_snapshot_step(inputs_.config.recovery, step);
    std::optional<Corruption> corruption;
    if (replicas.is_due(step, is_kept)) corruption = ReplicaCheck::compare(all);
    if (recompute.is_due(step) && recompute.found()) {
      report_corruption(*recompute.found(), step, reporter);
      if (!recompute.is_mended()) corruption = recompute.found();
    } else if (corruption) {
      report_corruption(*corruption, step, reporter);
    }
    Judgement judged =
        recovery_.judge({.step = step,
                         .decision = record_.decision,
                         .history = program::guard_history(*executor_),
                         .logit_max = record_.statistics ? record_.statistics->logit_max : std::nullopt,
                         .is_last = step >= position_.total_steps(),
                         .has_finite_weights = std::isfinite(record_.param_norm),
                         .corruption = corruption},
                        journal_);
    if (!judged.stop.empty() && record_.decision.overflowed != 0) judged.stop += overflow_text(steps);
    position_.advance();
    reporter.total_steps(position_.total_steps());
    if (judged.rollback || !judged.stop.empty()) {
      reporter.step(record_);
      steps.drop_started();
      if (intervene(judged, saves, reporter)) {
        steps.weights_changed();
        steps.set_noise(noise_);
        continue;
      }
    }
    noise_ = steps.noise();
    follow_noise();
    const bool is_last = position_.is_at_end();

    if (evaluations.has_any() && (all.front().wants_evaluation != 0 || is_last)) {
      steps.drop_started();
      options_.board.enter(RankPhase::kEvaluation, step);
      record_.evaluations = evaluations_ = evaluations.measure(step, [&] { return stopping.ask_all(); });
      reporter.step(record_);
      for (const auto& [prompt, text] : evaluations.write_texts()) reporter.sample(step, prompt, text);
      stopping.ask_all();
    } else {
      reporter.step(record_);
    }

    intervene(judged, saves, reporter);
    if (is_snapshot_due(inputs_.config.recovery, record_)) take_snapshot();
    end = is_last ? RunEnd::kFinished : stopping.end();
    if (!end && all.front().wants_copy != 0 && is_sound(record_) && !corruption) take_copy(reporter);
    if (!any(all, &RankReport::is_saving)) {
      saves.end();
      steering.saved(false);
    }
    SteeringEffects effects;
    if (all.front().is_steered != 0) effects = steer(steering, end.has_value(), reporter);
    if (!effects.changes.empty()) changed();
    if (!end && effects.stop) end = RunEnd::kInterrupted;
    if (all.front().wants_save != 0 || effects.save || end) {
      options_.board.enter(RankPhase::kSave, step);
      reporter.sync();
      if (injector) {
        saves.end();  // this save is damaged, not the one before it
        injector->before_save(step);
      }
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

void TrainingLoop::take_noise(const TrainingState& state) {
  noise_ = state.noise;
  if (config_.training.batch_ramp.is_word()) {
    const std::vector<int64_t> sizes = config::batch_sizes(config_);
    if (state.noise_ramp.empty()) {
      noise_ramp_.emplace(sizes);
    } else {
      noise_ramp_.emplace(sizes, parse_json<nlohmann::json>(state.noise_ramp));
    }
    position_.set_batch(noise_ramp_->batch());
  }
}

void TrainingLoop::follow_noise() {
  if (!noise_ramp_) return;
  std::optional<double> sequences;
  if (record_.noise_scale)
    sequences = *record_.noise_scale / static_cast<double>(config_.training.sequence_length);
  if (const auto batch = noise_ramp_->after_step(sequences)) {
    journal_.add({.kind = Effect::Kind::kBatch, .step = position_.step(), .sequences = *batch});
    write_journal();
    position_.set_batch(*batch);
  }
}

void TrainingLoop::take_copy(Reporter& reporter) {
  options_.board.enter(RankPhase::kCopy, record_.step);
  // If the host is lost with its copies, metrics must not end before the copy of another host.
  if (copies_->has_partners()) reporter.sync();
  copies_->take(save().state);
  if (injector_ == nullptr) return;
  if (const auto flip = injector_->flip_copy(record_.step)) copies_->flip(flip->draw, flip->bit);
}

void TrainingLoop::take_snapshot() {
  snapshots_->take(save().state);
  if (injector_ == nullptr) return;
  if (const auto flip = injector_->flip_snapshot(record_.step)) {
    const std::span<std::byte> bytes = snapshots_->bytes_of(record_.step);
    if (!bytes.empty()) bytes[flip->draw % bytes.size()] ^= static_cast<std::byte>(1 << flip->bit);
  }
}

SteeringEffects TrainingLoop::steer(Steering& steering, bool ends, Reporter& reporter) {
  const std::string text = comm::broadcast_text(inputs_.ranks.all(), steering.poll(position_, ends));
  SteeringEffects effects = steering.apply(text);
  const auto skips = [](const Steered& one) { return one.change.key == "data.skip"; };
  if (std::any_of(effects.changes.begin(), effects.changes.end(), skips))
    position_.continue_from(position_.state());
  for (const auto& [setting, by] : effects.settings) {
    journal_.add({.kind = Effect::Kind::kSet,
                  .step = position_.step(),
                  .key = setting.key,
                  .value = setting.value,
                  .by = by});
  }
  if (!effects.settings.empty()) write_journal();
  steering.confirm(effects, position_.step() + 1, reporter);
  return effects;
}

}  // namespace strata::training
