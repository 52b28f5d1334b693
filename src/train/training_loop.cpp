#include "train/training_loop.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/signals.h"
#include "base/version.h"
#include "checkpoint/weights.h"
#include "comm/exchange.h"
#include "config/objective.h"
#include "evaluation/evaluate.h"
#include "hardware/device_spec.h"
#include "program/initialize.h"
#include "program/memory_report.h"
#include "program/update.h"
#include "train/due.h"
#include "train/loss_terms.h"

namespace strata::train {
namespace {

using program::Executor;
using program::Segment;

bool holds(const std::vector<config::Range>& ranges, int64_t step) {
  return std::any_of(ranges.begin(), ranges.end(),
                     [&](const config::Range& r) { return r.first <= step && step <= r.last; });
}

// Seconds that the run may take from now on: the scheduler's limit where there is one, else no end.
double time_limit(const config::RunConfig& config) {
  if (!config.run.max_time.is_word()) return (*config.run.max_time).seconds;
  if (const char* end = std::getenv("SLURM_JOB_END_TIME")) {
    // Two minutes to finish the step and save.
    return std::strtod(end, nullptr) - unix_seconds() - 120;
  }
  return std::numeric_limits<double>::infinity();
}

// The best GEMM of this machine in FLOP/s: from the cache that `strata doctor` fills, else, where the run is
// long enough to pay for it, measured now in half a second; else 0. A peak that a whole step, which `reached`
// so many FLOP/s, leaves far behind was measured while others used the machine, and is none.
double gemm_peak(const device::Device& device, DType dtype, double reached, double seconds_left, bool warns) {
  constexpr double kBeyond = 1.1;  // a step's large products may be a few percent above one by itself
  hardware::DeviceSpec spec = device.spec();
  if (hardware::load_cached_device(spec)) {
    const double known = dtype == DType::kBF16 ? spec.gemm_flops_bf16 : spec.gemm_flops_f32;
    if (known > 0 && reached <= kBeyond * known) return known;
    if (known > 0 && warns) {
      log_warning(
          "this machine's best matrix product was measured at {:.0f} GFLOP/s while it was busy, and a step "
          "does {:.0f}: MFU is of a peak measured now, or left out where the run is short; `strata doctor` "
          "measures what is kept",
          known / 1e9, reached / 1e9);
    }
  }
  if (seconds_left < 60) return 0;
  const device::PeakProduct probe = device.peak_product(dtype);
  double best = 0;
  for (const double end = monotonic_seconds() + 0.5; best == 0 || monotonic_seconds() < end;) {
    const double begin = monotonic_seconds();
    probe.run();
    best = std::max(best, probe.flops / (monotonic_seconds() - begin));
  }
  return best;
}

}  // namespace

TrainingLoop::TrainingLoop(config::RunConfig config, std::vector<config::Change> changes,
                           models::ModelConfig model, std::optional<data::Tokenizer> tokenizer,
                           config::RunData data, RunStore& store, FileSystem& files,
                           const std::function<bool()>& stop, const std::optional<TrainingState>& likely,
                           const program::Ranks& ranks)
    : config_(std::move(config)),
      changes_(std::move(changes)),
      model_(std::move(model)),
      tokenizer_(std::move(tokenizer)),
      data_(std::move(data)),
      store_(store),
      files_(files),
      stop_(stop),
      ranks_(ranks),
      step_tokens_(config_.training.global_batch_size * config_.training.sequence_length),
      schedule_(config::schedule_of(config_)) {
  stand_at(likely.value_or(TrainingState{}));
}

void TrainingLoop::stand_at(const TrainingState& state) {
  step_ = state.step;
  tokens_ = state.tokens;
  samples_done_ = state.samples;
  const auto order_from = [&](data::DataOrigin origin) {
    samples_ = std::make_unique<data::SampleSource>(
        data_.sources, config::sample_options(config_, model_, tokenizer(), std::move(origin)));
  };
  order_from(state.origin);
  reordered_ = state.next_sample && samples_->fingerprint() != state.order;
  if (reordered_) order_from({state.step, *state.next_sample, state.sources});
  trained_ = state.next_sample ? samples_->skip().trained_before(*state.next_sample) : state.samples;
  total_steps_ = std::min(steps_asked_for(), steps_with_data());
}

void TrainingLoop::tell_order() const {
  const data::DataOrigin& origin = samples_->options().origin;
  log_info("data: their order begins anew at sample {}", origin.sample);
  const int64_t window = samples_->shape().window;
  for (const data::SourcePosition& at : origin.sources) {
    if (at.offset == 0 || at.layout.window == window) continue;
    log_info(
        "data: what is left of epoch {} of {} was cut into windows of {} tokens; rows of {} are put together "
        "from "
        "these until it ends",
        at.epoch + 1, at.name, at.layout.window, window);
  }
}

int64_t TrainingLoop::steps_asked_for() const {
  const auto& training = config_.training;
  if (!training.tokens) return training.steps;
  return step_ + config::steps_for_tokens(config_, std::max<int64_t>(0, *training.tokens - tokens_),
                                          samples_->filled());
}

int64_t TrainingLoop::steps_with_data() const {
  const int64_t all = samples_->total_samples();
  if (all == data::Mixture::kUnbounded) return std::numeric_limits<int64_t>::max();
  const int64_t batch = config_.training.global_batch_size;
  return step_ + (std::max<int64_t>(0, all - trained_) + batch - 1) / batch;
}

std::string TrainingLoop::extension() const {
  const auto& training = config_.training;
  if (steps_with_data() <= steps_asked_for())
    return fmt::format("--set data.epochs={} --accept-changes", config_.data.epochs.value_or(1) + 1);
  if (training.tokens) return fmt::format("--set training.tokens={} --accept-changes", 2 * *training.tokens);
  return fmt::format("--set training.steps={} --accept-changes", 2 * training.steps);
}

int64_t TrainingLoop::start(std::shared_ptr<const program::ProgramSet> set, const std::string& resume,
                            bool accept_changes) {
  executor_ = std::make_unique<Executor>(std::move(set), config::make_device(config_), ranks_);
  program::write_coordinates(*executor_);
  elsewhere_ = resume != "auto" && resume != "never";
  const std::optional<TrainingState> state =
      elsewhere_ ? store_.load(resume, model_, *executor_) : store_.load_newest(model_, *executor_);
  if (state) {
    check_state(*state, accept_changes);
    stand_at(*state);
  } else {
    stand_at({});
    program::initialize_weights(*executor_, static_cast<uint64_t>(config_.run.seed));
    if (!config_.model.from.empty() && config_.model.init == config::ModelInit::kWeights) {
      checkpoint::load_hugging_face(config::model_folder(config_), model_, *executor_);
    }
  }
  if (reordered_) tell_order();
  if (elsewhere_ && is_first()) store_.set_aside_after(step_);
  executor_->run(config::kTrainProgram, {Segment::kEncode});
  return step_;
}

TrainResult TrainingLoop::run() {
  const std::unique_ptr<Reporter> made = make_reporter();
  Reporter& reporter = *made;
  try {
    set_stop_text(step_);
    const RunEnd end = loop(reporter);
    if (stop_speaker_) strata::set_stop_text("");
    return {end, step_, record_.loss.value_or(std::numeric_limits<double>::quiet_NaN())};
  } catch (const WorldError& error) {
    // The page says what happened where the disk still takes it; the error itself counts.
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

void TrainingLoop::set_stop_text(int64_t saved_step) const {
  if (!stop_speaker_) return;
  strata::set_stop_text(
      saved_step == 0 ? std::string("stopped: nothing is saved yet; the same command begins again")
                      : fmt::format("stopped: step {} is saved in {}; the same command goes on from there",
                                    saved_step, (store_.folder() / "checkpoints").string()),
      *stop_speaker_);
}

void TrainingLoop::complete() {
  const auto metrics = observe::read_metrics(store_.folder() / "metrics.jsonl");
  const auto& events = metrics.events();
  if (std::any_of(events.begin(), events.end(),
                  [&](const auto& event) { return event.event == "finish" && event.at_step == step_; })) {
    return;
  }
  const std::unique_ptr<Reporter> reporter = make_reporter();
  reporter->extension(extension());
  finish(*reporter);
}

std::unique_ptr<Reporter> TrainingLoop::make_reporter() {
  if (!is_first()) return std::make_unique<Reporter>();
  return std::make_unique<RunReporter>(files_, config_, *executor_, total_steps_, step_);
}

config::BatchPart TrainingLoop::part_of_batch() const {
  return config::batch_part(config_.training.global_batch_size, ranks_.batch_part(), ranks_.batch_parts());
}

void TrainingLoop::check_state(const TrainingState& state, bool accept_changes) {
  if (state.step == 0) return;  // imported weights
  if (state.seed != static_cast<uint64_t>(config_.run.seed)) {
    throw ConfigError(
        "[run.seed] the checkpoint was made with seed {} and the configuration says {}; data order would "
        "change in the middle of the run",
        state.seed, config_.run.seed);
  }
  if (state.tokenizer != tokenizer_hash()) {
    throw ConfigError(
        "[tokenizer] is not the one that the checkpoint of step {} was trained with; give that one, or "
        "start "
        "a new run in another run.folder",
        state.step);
  }
  const std::string data = config::data_fingerprint(data_);
  if (state.data == data || store_.accepted_data(data)) return;
  if (!accept_changes) {
    throw ConfigError(
        "[data] the training tokens are not those that the run had at step {}: files of the corpus, or "
        "what "
        "is held out of it, have changed; give it back, or go on with --accept-changes",
        state.step);
  }
  if (is_first()) store_.accept_data(data);
  changes_.push_back({"data", state.data, data, config::ResumeClass::kAccept});
  log_info("changed: the training tokens are others than at step {}", state.step);
}

void TrainingLoop::finish(Reporter& reporter) {
  store_.write_final(to_save());
  reporter.event("finish", step_);
  reporter.finish(observe::RunState::kFinished);
}

RunEnd TrainingLoop::loop(Reporter& reporter) {
  const auto& training = config_.training;
  const program::Request& request = executor_->program(config::kTrainProgram).request;
  data::Loader loader(*samples_, {.max_sequences = std::max<int64_t>(1, part_of_batch().rows),
                                  .stride = training.global_batch_size,
                                  .rows = request.micro_batches * request.sequences});
  StepExchange exchange(ranks_.all());
  for (const config::Change& change : changes_) {
    reporter.event("changed", step_,
                   {{"key", change.key}, {"before", change.before}, {"after", change.after}});
  }
  if (reordered_) reporter.event("reordered", step_, {{"first_sample", samples_->options().origin.sample}});
  observe::MetricFields start{{"parameters", models::parameter_count(model_)},
                              {"arena_bytes", executor_->arena_bytes()},
                              {"process_seconds", process_seconds()},
                              {"program", fmt::format("strata {}", program_version())}};
  if (!ranks_.alone()) start.push_back({"staging_bytes", ranks_.staging_bytes()});
  reporter.event(step_ == 0 ? "start" : "resume", step_, start);
  reporter.fact("model", fmt::format("{}, {}", models::parameters_in_words(model_),
                                     config_.model.preset.empty() ? std::string(model_.family->name)
                                                                  : config_.model.preset));
  for (const std::string& leak : models::routing_leaks(model_)) reporter.fact("routing leaks", leak);
  reporter.fact("batch", fmt::format("{} sequences of {} tokens, {} at once", training.global_batch_size,
                                     training.sequence_length, *training.micro_batch_size));
  reporter.fact("data", config::to_string(plan()));
  reporter.fact("precision", std::string(name_of(config::activation_dtype(config_))));
  reporter.extension(extension());
  reporter.fact("threads", std::to_string(*config_.device.threads));
  if (!ranks_.alone()) {
    const comm::World& world = ranks_.world();
    reporter.fact("ranks",
                  fmt::format("{} {}: {}", world.size(), world.engine() == "local" ? "threads" : "processes",
                              config::layout_in_words(config_)));
  }
  const double limit = time_limit(config_);
  const double begin = monotonic_seconds();
  Due evaluate_due(config_.eval.interval);
  Due save_due(config_.checkpoint.interval);
  double peak = -1;  // FLOP/s of the best GEMM; known after the first step, 0: not measured
  const double flops =
      models::training_flops_per_token(model_, training.sequence_length, samples_->shape().tokens,
                                       samples_->shape().target_share) *
      static_cast<double>(step_tokens_);
  StepTracer tracer(executor_->set());
  executor_->reset_timings();
  Saves saves(files_, store_, *executor_, program::save_staging_bytes(executor_->set()), reporter,
              [this](int64_t saved_step) { set_stop_text(saved_step); });
  // A run that began from a checkpoint elsewhere stands on one of its own from the start.
  if (elsewhere_) saves.begin(to_save());
  saves.end();

  while (step_ < total_steps_) {
    const int64_t step = step_ + 1;
    const bool traced = holds(config_.profile.steps, step);
    executor_->observe(traced ? &tracer : nullptr);
    record_ = {};
    const double step_begin = monotonic_seconds();
    train_step(step, loader, saves);
    record_.step_seconds = monotonic_seconds() - step_begin;
    record_.checkpoint_seconds = saves.take_waited();
    // From here on all ranks decide alike: by what they told each other.
    StepNews mine = news();
    mine.stops = !ranks_.alone() && stop_();
    mine.is_out_of_time = monotonic_seconds() - begin > limit;
    mine.wants_evaluation = evaluate_due.at(step, tokens_, record_.tokens);
    save_due.costs(saves.cost());
    mine.wants_save = save_due.at(step, tokens_, record_.tokens);
    mine.is_saving = saves.running();
    const std::vector<StepNews>& all = exchange.exchange(mine);
    take_losses(all);
    if (peak < 0) {
      peak = gemm_peak(executor_->device(), config::activation_dtype(config_),
                       flops / record_.step_seconds / static_cast<double>(all.size()),
                       record_.step_seconds * static_cast<double>(total_steps_ - step), is_first());
    }
    record_.flops = flops;
    record_.peak_flops = peak * static_cast<double>(all.size());
    executor_->observe(nullptr);
    if (traced) {
      const std::string rank = is_first() ? "" : fmt::format("-rank-{}", ranks_.world().rank());
      tracer.write(files_, store_.folder() / "traces" / fmt::format("step-{:08}{}.json", step, rank), step);
    }
    if (const double loss = record_.loss.value_or(0);
        !std::isfinite(loss) || !std::isfinite(record_.grad_norm)) {
      saves.end();
      reporter.event("diverged", step, {{"loss", loss}, {"grad_norm", record_.grad_norm}});
      reporter.finish(observe::RunState::kFailed,
                      fmt::format("step {}: loss or gradient is not finite", step));
      throw DivergedError(
          "[step {}] loss {} and gradient norm {} are not finite; the weights of step {} are untouched in "
          "memory and the last checkpoint on disk is good. Lower optimizer.lr, raise "
          "schedule.warmup_steps, or leave out the batch: data.skip = [[{}, {}]]",
          step, loss, record_.grad_norm, step_, record_.first_sample,
          samples_->skip().global_of(trained_ + training.global_batch_size - 1));
    }
    step_ = step;
    tokens_ = record_.tokens;
    // Rows with empty places hold more or fewer tokens than they do on average.
    if (training.tokens && samples_->filled() < 1) {
      total_steps_ = std::min(steps_asked_for(), steps_with_data());
      reporter.total_steps(total_steps_);
    }
    // The last batch of bounded data may have empty rows.
    const int64_t samples = std::min(training.global_batch_size, samples_->total_samples() - trained_);
    trained_ += samples;
    samples_done_ += samples;
    const bool last = step_ == total_steps_;
    const bool evaluates = config_.eval.interval.kind != config::Interval::Kind::kNever &&
                           (!data_.held_out.empty() || !data_.tasks.empty());
    if (evaluates && (all.front().wants_evaluation != 0 || last)) {
      evaluate_all();
      evaluate_due.done();
      reporter.step(record_);
      write_samples(reporter);
    } else {
      reporter.step(record_);
    }
    // One alone need not agree with others, and may be stopped while it evaluates.
    const bool stopping = stop_seen_ || any(all, &StepNews::stops) || (ranks_.alone() && stop_());
    const bool out_of_time = any(all, &StepNews::is_out_of_time);
    if (!any(all, &StepNews::is_saving)) saves.end();
    if (all.front().wants_save != 0 || last || stopping || out_of_time) {
      reporter.sync();
      saves.begin(to_save());
      save_due.done();
    }
    if (last || stopping || out_of_time) saves.end();
    if (last) break;
    if (stopping || out_of_time) {
      reporter.event(stopping ? "interrupt" : "time_limit", step_);
      reporter.finish(observe::RunState::kInterrupted, stopping ? "stopped by the user" : "time limit");
      return stopping ? RunEnd::kInterrupted : RunEnd::kTimeLimit;
    }
  }
  finish(reporter);
  return RunEnd::kFinished;
}

void TrainingLoop::train_step(int64_t step, data::Loader& loader, Saves& saves) {
  const auto& training = config_.training;
  record_.step = step;
  record_.first_sample = samples_->skip().global_of(trained_);
  record_.step_tokens = samples_->tokens(trained_, training.global_batch_size);
  record_.tokens = tokens_ + record_.step_tokens;
  record_.lr = optim::learning_rate(schedule_, step);

  const config::BatchPart part = part_of_batch();
  const data::HostBatch& batch = loader.next(trained_ + part.first, part.rows);
  record_.data_wait_seconds = loader.wait_seconds();
  program::write_hyper(*executor_,
                       {.max_grad_norm = training.clip_grad_norm, .lr = static_cast<float>(record_.lr)});
  if (model_.predict_layers > 0) {
    terms_ = terms_of_all(
        count_terms(batch[Column::kTargets], samples_->shape().tokens, model_.predict_layers), ranks_);
    program::write_terms(*executor_, terms_);
  }
  // From here to the end of the update instructions decide.
  const program::Script& script = executor_->program(config::kTrainProgram).script;
  for (size_t i = 0; i < script.size(); ++i) {
    const program::Action& action = script[i];
    ranks_.world().doing(fmt::format("step {}, {}", step, program::str(action)));
    // A rank's first chunk is the first that reads a micro-batch.
    if (action.segment == Segment::kForward && action.chunk == 0) {
      executor_->upload_rows(config::kTrainProgram, batch.rows(samples_->shape()),
                             action.micro_batch * *training.micro_batch_size, action.micro_batch);
    }
    if (action.segment == Segment::kUpdate) saves.before_update();
    executor_->run_in_script(config::kTrainProgram, i, true);
  }
  record_.grad_norm = executor_->read<float>("grad_norm");
  record_.param_norm = executor_->read<float>("param_norm");
}

StepNews TrainingLoop::news() {
  StepNews news{.loss_sum = executor_->read<double>("loss_sum"),
                .tokens = static_cast<double>(executor_->read<int64_t>("token_count")),
                .compute_seconds = record_.step_seconds,
                .data_wait_seconds = record_.data_wait_seconds};
  const graph::Graph& graph = executor_->program(config::kTrainProgram).graph;
  // Ranks that hold the same sum tell it once.
  const auto sum_of = [&](const std::string& name) {
    const graph::ValueId sum = graph.find_value(name);
    const bool tells = sum != graph::kNone && ranks_.is_first_holder(graph.value(sum).placements);
    return tells ? executor_->read<double>(name) : 0.0;
  };
  news.balance_loss_sum = sum_of("balance_loss_sum");
  news.router_z_loss_sum = sum_of("router_z_loss_sum");
  for (int64_t k = 1; k <= model_.predict_layers; ++k) {
    const double sum = sum_of(fmt::format("predict.{}.loss_sum", k));
    if (const int64_t terms = terms_[static_cast<size_t>(k)]; terms > 0)
      news.mtp_loss += sum / static_cast<double>(terms) / static_cast<double>(layers_with_terms());
  }
  if (!experts_) experts_.emplace(model_, graph, ranks_);
  if (!ranks_.is_first_holder(graph.value(graph.find_value("loss_sum")).placements))
    news.loss_sum = news.tokens = 0;
  news.memory_bytes = static_cast<double>(resident_bytes());
  const double waited = executor_->seconds_waited();
  news.compute_seconds -= waited - std::exchange(seconds_waited_, waited);
  return news;
}

void TrainingLoop::take_losses(const std::vector<StepNews>& all) {
  double sum = 0, tokens = 0, further = 0;
  for (const StepNews& one : all) {
    sum += one.loss_sum;
    tokens += one.tokens;
    record_.balance_loss += one.balance_loss_sum;
    record_.router_z_loss += one.router_z_loss_sum;
    further += one.mtp_loss;
  }
  if (tokens > 0) {
    record_.balance_loss /= tokens;
    record_.router_z_loss /= tokens;
    record_.loss = sum / tokens;
  }
  if (layers_with_terms() > 0) record_.mtp_loss = further;
  if (experts_->has_experts()) record_.experts = experts_->read(*executor_, tokens);
  if (all.size() > 1) record_.ranks = all;
}

int64_t TrainingLoop::layers_with_terms() const {
  return terms_.empty() ? 0
                        : std::count_if(terms_.begin() + 1, terms_.end(), [](int64_t n) { return n > 0; });
}

RunStore::Save TrainingLoop::to_save() const {
  // Behind the last sample that was trained on, not at the next that will be: a range that is added to
  // data.skip later begins at any of those between.
  const int64_t next_sample = trained_ > 0 ? samples_->skip().global_of(trained_ - 1) + 1 : 0;
  const TrainingState state{.step = step_,
                            .updates = program::updates_made(*executor_),
                            .samples = samples_done_,
                            .tokens = tokens_,
                            .next_sample = next_sample,
                            .order = samples_->fingerprint(),
                            .origin = samples_->options().origin,
                            .sources = samples_->positions(next_sample),
                            .seed = static_cast<uint64_t>(config_.run.seed),
                            .tokenizer = tokenizer_hash(),
                            .data = config::data_fingerprint(data_)};
  checkpoint::Health health{.loss = record_.loss,
                            .grad_norm = record_.grad_norm,
                            .finite = std::isfinite(record_.param_norm),
                            .metrics = {}};
  for (const auto& [name, value] : evaluations_) health.metrics[name] = value;
  checkpoint::RetentionPolicy retention{.keep_last = config_.checkpoint.keep_last,
                                        .keep_best = config_.checkpoint.keep_best,
                                        .best_metric = config_.checkpoint.best_metric};
  if (config_.checkpoint.keep_every.kind == config::Interval::Kind::kSteps)
    retention.keep_every = config_.checkpoint.keep_every.count;
  return {model_, *executor_, tokenizer(), state, health, retention};
}

}  // namespace strata::train
