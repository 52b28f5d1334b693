#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <limits>

#include "base/clock.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/parallel.h"
#include "base/version.h"
#include "data/loader.h"
#include "hardware/device_spec.h"
#include "kernels/cpu/measure.h"
#include "optim/schedule.h"
#include "train/evaluate.h"
#include "train/generate.h"
#include "train/reporter.h"
#include "train/run_store.h"
#include "train/setup.h"
#include "train/trainer.h"
#include "train/weights.h"

namespace strata::train {
namespace {

using program::Executor;
using program::Segment;

std::string machine_line(const hardware::DeviceSpec& device) {
  return fmt::format("{}, {} threads, {}", device.name, device.threads, device.isa.str());
}

// Whether an interval says that something is due, counting from the last time it happened.
class Due {
 public:
  Due(const Interval& interval, int64_t step, int64_t step_tokens)
      : interval_(interval), step_tokens_(step_tokens), last_step_(step), last_time_(monotonic_seconds()) {}

  bool at(int64_t step) const {
    switch (interval_.kind) {
      case Interval::Kind::kNever:
        return false;
      case Interval::Kind::kSteps:
        return step % interval_.count == 0;
      case Interval::Kind::kTokens:
        return step * step_tokens_ / interval_.count > (step - 1) * step_tokens_ / interval_.count;
      case Interval::Kind::kSeconds:
        return monotonic_seconds() - last_time_ >= interval_.seconds;
      // At most 1 % of the time, and at least every 30 minutes.
      case Interval::Kind::kAuto:
        return monotonic_seconds() - last_time_ >= std::min(1800.0, std::max(60.0, 100 * cost_));
    }
    return false;
  }
  void done(int64_t step, double seconds) {
    last_step_ = step;
    last_time_ = monotonic_seconds();
    cost_ = seconds;
  }
  int64_t last_step() const { return last_step_; }

 private:
  Interval interval_;
  int64_t step_tokens_;
  int64_t last_step_;
  double last_time_;
  double cost_ = 0;
};

bool holds(const std::vector<Range>& ranges, int64_t step) {
  return std::any_of(ranges.begin(), ranges.end(),
                     [&](const Range& r) { return r.first <= step && step <= r.last; });
}

// Seconds that the run may take from now on: the scheduler's limit where there is one, else no end.
double time_limit(const RunConfig& config) {
  if (!config.run.max_time.is_word()) return (*config.run.max_time).seconds;
  if (const char* end = std::getenv("SLURM_JOB_END_TIME")) {
    // Two minutes to finish the step and save.
    return std::strtod(end, nullptr) - unix_seconds() - 120;
  }
  return std::numeric_limits<double>::infinity();
}

// The best GEMM of this machine in FLOP/s: from the cache that `strata doctor` fills, else, where the run is
// long enough to pay for it, measured now in half a second; else 0.
double gemm_peak(DType dtype, int threads, double seconds_left) {
  hardware::DeviceSpec device = cpu::describe_device(threads);
  if (hardware::load_cached_device(device)) {
    const double known = dtype == DType::kBF16 ? device.gemm_flops_bf16 : device.gemm_flops_f32;
    if (known > 0) return known;
  }
  if (seconds_left < 60) return 0;
  const cpu::FamilyProbe probe = cpu::peak_gemm_probe(dtype);
  double best = 0;
  for (const double end = monotonic_seconds() + 0.5; best == 0 || monotonic_seconds() < end;) {
    const double begin = monotonic_seconds();
    probe.run();
    best = std::max(best, probe.flops / (monotonic_seconds() - begin));
  }
  return best;
}

class Trainer {
 public:
  // `changes` are what a resume changes in the configuration.
  Trainer(RunConfig config, std::vector<Change> changes, models::ModelConfig model,
          std::optional<data::Tokenizer> tokenizer, RunData data, RunStore& store, FileSystem& files,
          const std::function<bool()>& stop)
      : config_(std::move(config)),
        changes_(std::move(changes)),
        model_(std::move(model)),
        tokenizer_(std::move(tokenizer)),
        data_(std::move(data)),
        store_(store),
        files_(files),
        stop_(stop),
        step_tokens_(config_.training.global_batch_size * config_.training.sequence_length),
        samples_(data_.sources, sample_options(config_)),
        total_steps_(steps_with_data()),
        schedule_(schedule_of(config_)) {}

  int64_t total_steps() const { return total_steps_; }

  // Fills the arena; returns the step that is done already.
  int64_t start(std::shared_ptr<const program::ProgramSet> set, const std::string& resume,
                bool accept_changes) {
    executor_ = std::make_unique<Executor>(std::move(set));
    elsewhere_ = resume != "auto" && resume != "never";
    const std::optional<RunState> state =
        elsewhere_ ? store_.load(resume, model_, *executor_) : store_.load_newest(model_, *executor_);
    if (state) {
      check_state(*state, accept_changes);
      step_ = state->step;
      updates_ = state->updates;
    } else {
      initialize_weights(*executor_, static_cast<uint64_t>(config_.run.seed));
      if (!config_.model.from.empty() && config_.model.init == ModelInit::kWeights) {
        load_hugging_face(config_.model.from, model_, *executor_);
      }
    }
    if (elsewhere_) store_.set_aside_after(step_);
    executor_->run(kTrainProgram, Segment::kEncode);
    return step_;
  }

  TrainResult run() {
    Reporter reporter(files_, config_, *executor_, total_steps_, step_);
    try {
      const RunEnd end = loop(reporter);
      return {end, step_, record_.loss};
    } catch (const WorldError& error) {
      // The page says what happened where the disk still takes it; the error itself counts.
      try {
        reporter.finish(observe::RunState::kFailed, error.what());
      } catch (const Error&) {
      }
      throw;
    }
  }

  // A run that was killed between its last save and its end lacks what comes after the save.
  void complete() {
    const auto metrics = observe::read_metrics(store_.folder() / "metrics.jsonl");
    const auto& events = metrics.events();
    if (std::any_of(events.begin(), events.end(),
                    [&](const auto& event) { return event.event == "finish" && event.at_step == step_; })) {
      return;
    }
    Reporter reporter(files_, config_, *executor_, total_steps_, step_);
    finish(reporter);
  }

 private:
  int64_t steps_with_data() const {
    const int64_t wanted = ::strata::train::total_steps(config_);
    const int64_t samples = samples_.total_samples();
    const int64_t batch = config_.training.global_batch_size;
    if (samples == data::Mixture::kUnbounded) return wanted;
    const int64_t available = (samples + batch - 1) / batch;
    if (available < wanted)
      log_info("data.epochs ends the run after {} steps, before the {} asked for", available, wanted);
    return std::min(wanted, available);
  }

  // What the configuration does not say and a resume may not change unseen.
  void check_state(const RunState& state, bool accept_changes) const {
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
    if (state.data != data_fingerprint(data_) && !accept_changes) {
      throw ConfigError(
          "[data] the training tokens are not those that the run had at step {}: files of the corpus, or "
          "what "
          "is held out of it, have changed; give it back, or go on with --accept-changes",
          state.step);
    }
  }

  std::string tokenizer_hash() const { return tokenizer_ ? to_hex(tokenizer_->hash()) : ""; }

  void finish(Reporter& reporter) {
    store_.write_final(model_, *executor_, tokenizer());
    reporter.event("finish", step_);
    reporter.finish(observe::RunState::kFinished);
  }

  RunEnd loop(Reporter& reporter) {
    const auto& training = config_.training;
    const int64_t micro_batches = training.global_batch_size / *training.micro_batch_size;
    data::Loader loader(samples_, {.max_sequences = training.global_batch_size});
    for (const Change& change : changes_) {
      reporter.event("changed", step_,
                     {{"key", change.key}, {"before", change.before}, {"after", change.after}});
    }
    reporter.event(step_ == 0 ? "start" : "resume", step_,
                   {{"parameters", models::parameter_count(model_)},
                    {"arena_bytes", executor_->arena_bytes()},
                    {"program", fmt::format("strata {}", program_version())}});
    reporter.fact(
        "model",
        fmt::format("{} parameters, {}", human_count(static_cast<double>(models::parameter_count(model_))),
                    config_.model.preset.empty() ? std::string(model_.family->name) : config_.model.preset));
    reporter.fact("batch", fmt::format("{} sequences of {} tokens, {} at once", training.global_batch_size,
                                       training.sequence_length, *training.micro_batch_size));
    reporter.fact("precision", std::string(name_of(activation_dtype(config_))));
    reporter.fact("threads", std::to_string(*config_.device.threads));
    const double limit = time_limit(config_);
    const double begin = monotonic_seconds();
    Due evaluate_due(config_.eval.interval, step_, step_tokens_);
    Due save_due(config_.checkpoint.interval, step_, step_tokens_);
    double peak = -1;  // FLOP/s of the best GEMM; known after the first step, 0: not measured
    const double flops = models::training_flops_per_token(model_, training.sequence_length) *
                         static_cast<double>(step_tokens_);
    StepTracer tracer(executor_->set());
    executor_->reset_timings();
    double previous_save_seconds = 0;
    // A run that began from a checkpoint elsewhere stands on one of its own from the start.
    if (elsewhere_) save(reporter);

    while (step_ < total_steps_) {
      const int64_t step = step_ + 1;
      const bool traced = holds(config_.profile.steps, step);
      executor_->observe(traced ? &tracer : nullptr);
      record_ = {};
      record_.checkpoint_seconds = previous_save_seconds;
      const double step_begin = monotonic_seconds();
      train_step(step, micro_batches, loader);
      record_.step_seconds = monotonic_seconds() - step_begin;
      if (peak < 0) {
        peak = gemm_peak(activation_dtype(config_), static_cast<int>(*config_.device.threads),
                         record_.step_seconds * static_cast<double>(total_steps_ - step));
      }
      record_.flops = flops;
      record_.peak_flops = peak;
      executor_->observe(nullptr);
      if (traced)
        tracer.write(files_, store_.folder() / "traces" / fmt::format("step-{:08}.json", step), step);
      if (!std::isfinite(record_.loss) || !std::isfinite(record_.grad_norm)) {
        reporter.event("diverged", step, {{"loss", record_.loss}, {"grad_norm", record_.grad_norm}});
        reporter.finish(observe::RunState::kFailed,
                        fmt::format("step {}: loss or gradient is not finite", step));
        throw DivergedError(
            "[step {}] loss {} and gradient norm {} are not finite; the weights of step {} are untouched in "
            "memory and the last checkpoint on disk is good. Lower optimizer.lr, raise "
            "schedule.warmup_steps, or leave out the batch: data.skip = [[{}, {}]]",
            step, record_.loss, record_.grad_norm, step_, record_.first_sample,
            record_.first_sample + training.global_batch_size - 1);
      }
      step_ = step;
      const bool last = step_ == total_steps_;
      if (!data_.held_out.empty() && (evaluate_due.at(step_) || last)) {
        evaluate_all();
        evaluate_due.done(step_, 0);
        reporter.step(record_);
        write_samples(reporter);
      } else {
        reporter.step(record_);
      }
      const bool stopping = stop_();
      const bool out_of_time = monotonic_seconds() - begin > limit;
      previous_save_seconds = 0;
      if (save_due.at(step_) || last || stopping || out_of_time) {
        reporter.sync();
        previous_save_seconds = save(reporter);
        save_due.done(step_, previous_save_seconds);
      }
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

  void train_step(int64_t step, int64_t micro_batches, data::Loader& loader) {
    const auto& training = config_.training;
    const int64_t micro = *training.micro_batch_size;
    record_.step = step;
    record_.first_sample = (step - 1) * training.global_batch_size;
    record_.tokens = step * step_tokens_;
    record_.step_tokens = step_tokens_;
    record_.lr = optim::learning_rate(schedule_, step);

    const data::HostBatch& batch = loader.next(record_.first_sample, training.global_batch_size);
    record_.data_wait_seconds = loader.wait_seconds();
    const int64_t tokens = micro * training.sequence_length;
    for (int64_t i = 0; i < micro_batches; ++i) {
      auto copy = [&](const std::vector<int32_t>& from, const char* name) {
        if (std::byte* to = executor_->batch_input(kTrainProgram, name, i)) {
          std::memcpy(to, from.data() + i * tokens, static_cast<size_t>(tokens) * sizeof(int32_t));
        }
      };
      copy(batch.tokens, "tokens");
      copy(batch.targets, "targets");
      copy(batch.positions, "positions");
      copy(batch.kv_begin, "kv_begin");
    }
    for (int64_t i = 0; i < micro_batches; ++i) {
      executor_->run(kTrainProgram, i == 0 ? Segment::kFirst : Segment::kLater, i);
    }
    const double sum = *executor_->data_as<double>("loss_sum");
    const auto count = *executor_->data_as<int64_t>("token_count");

    const OptimizerTable& optimizer = config_.optimizer;
    optim::UpdateHyper hyper;
    hyper.beta1 = optimizer.beta1;
    hyper.beta2 = optimizer.beta2;
    hyper.eps = static_cast<float>(optimizer.eps);
    hyper.max_grad_norm = training.clip_grad_norm;
    hyper.lr = static_cast<float>(record_.lr);
    if (count > 0) ++updates_;
    const double updates = static_cast<double>(std::max<int64_t>(1, updates_));
    hyper.bias_correction1 = static_cast<float>(1 - std::pow(optimizer.beta1, updates));
    hyper.bias_correction2 = static_cast<float>(1 - std::pow(optimizer.beta2, updates));
    std::memcpy(executor_->data("hyper"), &hyper, sizeof hyper);
    executor_->run(kTrainProgram, Segment::kUpdate);
    executor_->run(kTrainProgram, Segment::kEncode);
    record_.loss = count > 0 ? sum / static_cast<double>(count) : 0.0;
    record_.grad_norm = *executor_->data_as<float>("grad_norm");
    record_.param_norm = *executor_->data_as<float>("param_norm");
  }

  void evaluate_all() {
    for (const HeldOut& held : data_.held_out) {
      const data::EvalWindows windows(held.corpus, {.sequence_length = config_.training.sequence_length,
                                                    .pack = sample_options(config_).pack,
                                                    .max_tokens = held.max_tokens});
      const EvalResult result = evaluate(*executor_, kEvalProgram, windows);
      record_.evaluations.emplace_back("eval/" + held.name + "/loss", result.loss());
      if (held.bytes_per_token > 0) {
        record_.evaluations.emplace_back("eval/" + held.name + "/bits_per_byte",
                                         result.loss() / std::log(2.0) / held.bytes_per_token);
      }
    }
    evaluations_ = record_.evaluations;
  }

  void write_samples(Reporter& reporter) {
    if (!tokenizer_ || config_.eval.sample_tokens == 0) return;
    Generator generator(*executor_, kPrefillProgram, kDecodeProgram);
    std::vector<std::string> prompts = config_.eval.sample_prompts;
    if (prompts.empty()) prompts.push_back("");
    std::string text;
    for (const std::string& prompt : prompts) {
      std::vector<int32_t> ids = tokenizer_->encode(prompt);
      if (ids.empty()) ids.push_back(tokenizer_->end_of_text_id().value_or(0));
      const auto made = generator.generate(
          ids, {.max_tokens =
                    std::min(config_.eval.sample_tokens, generator.room() - static_cast<int64_t>(ids.size())),
                .temperature = 0.8,
                .top_p = 0.95,
                .seed = static_cast<uint64_t>(config_.run.seed),
                .stop_id = tokenizer_->end_of_text_id(),
                .vocab_limit = tokenizer_->vocab_size()});
      text += (text.empty() ? "" : "\n\n") + prompt + tokenizer_->decode_text(made);
    }
    reporter.sample(step_, text);
  }

  double save(Reporter& reporter) {
    const double begin = monotonic_seconds();
    const RunState state{.step = step_,
                         .updates = updates_,
                         .samples = step_ * config_.training.global_batch_size,
                         .tokens = step_ * step_tokens_,
                         .seed = static_cast<uint64_t>(config_.run.seed),
                         .tokenizer = tokenizer_hash(),
                         .data = data_fingerprint(data_)};
    checkpoint::Health health{
        .loss = record_.loss, .grad_norm = record_.grad_norm, .finite = true, .metrics = {}};
    for (const auto& [name, value] : evaluations_) health.metrics[name] = value;
    checkpoint::RetentionPolicy retention{.keep_last = config_.checkpoint.keep_last,
                                          .keep_best = config_.checkpoint.keep_best,
                                          .best_metric = config_.checkpoint.best_metric};
    if (config_.checkpoint.keep_every.kind == Interval::Kind::kSteps)
      retention.keep_every = config_.checkpoint.keep_every.count;
    const uint64_t bytes = store_.save({model_, *executor_, tokenizer(), state, health, retention});
    const double seconds = monotonic_seconds() - begin;
    reporter.event("save", step_, {{"seconds", seconds}, {"bytes", static_cast<int64_t>(bytes)}});
    return seconds;
  }

  const data::Tokenizer* tokenizer() const { return tokenizer_ ? &*tokenizer_ : nullptr; }

  RunConfig config_;
  std::vector<Change> changes_;
  models::ModelConfig model_;
  std::optional<data::Tokenizer> tokenizer_;
  RunData data_;
  RunStore& store_;
  FileSystem& files_;
  const std::function<bool()>& stop_;
  int64_t step_tokens_;
  data::SampleSource samples_;
  int64_t total_steps_;
  optim::ScheduleConfig schedule_;
  std::unique_ptr<Executor> executor_;
  bool elsewhere_ = false;  // resumed from a checkpoint that the user named
  int64_t step_ = 0;
  int64_t updates_ = 0;  // that the optimizer made
  StepRecord record_;
  std::vector<std::pair<std::string, double>> evaluations_;  // the newest
};

// The configuration to go on with in this folder, and what it changes.
RunConfig with_stored(const RunOptions& options, const RunStore& store, std::vector<Change>& changes) {
  const auto stored = store.stored_config();
  if (options.resume == "never" && store.holds_run()) {
    throw ConfigError(
        "[{}] holds a run already and --resume never was given; choose another run.folder or remove it",
        store.folder().string());
  }
  if (!stored) return options.config;
  changes = compare_for_resume(*stored, options.config);
  // Before the first checkpoint nothing binds a run to what it was started with.
  const bool free = std::all_of(changes.begin(), changes.end(),
                                [](const Change& c) { return c.resume == ResumeClass::kFree; });
  if (!free && !store.holds_checkpoints()) {
    changes.clear();
    return options.config;
  }
  require_resumable(changes, options.accept_changes);
  return keep_resolved(options.config, *stored);
}

void describe(const RunConfig& config, const models::ModelConfig& model, const program::ProgramSet& set,
              const RunData& data, int64_t total_steps) {
  const double parameters = static_cast<double>(models::parameter_count(model));
  log_info("model: {} parameters ({}), {} layers of width {}", human_count(parameters), model.family->name,
           model.layers, model.width);
  log_info(
      "data: {} training tokens, {} a step, {} steps", human_count(static_cast<double>(data.train_tokens)),
      human_count(static_cast<double>(config.training.global_batch_size * config.training.sequence_length)),
      total_steps);
  log_info("program: {} instructions a micro-batch of {} x {}, {}, recompute {}, arena {}",
           set.programs[kTrainProgram].segment(Segment::kFirst).size(), *config.training.micro_batch_size,
           config.training.sequence_length, name_of(activation_dtype(config)),
           name_of(set.programs[kTrainProgram].recompute), human_bytes(static_cast<double>(set.arena_bytes)));
}

}  // namespace

TrainResult train_run(const RunOptions& options, const std::function<bool()>& stop) {
  FileSystem& files = options.files != nullptr ? *options.files : posix_file_system();
  const FaultHook hooks[] = {check_model};
  require_valid(options.config, hooks);
  for (const Fault& warning : warnings(options.config)) log_warning("{}", warning.to_string());
  RunStore store(files, options.config.run.folder);
  std::vector<Change> changes;
  RunConfig config = with_stored(options, store, changes);
  require_valid(config, hooks);

  // The horizon of the curve is fixed at the first start.
  if (config.schedule.steps.is_word()) config.schedule.steps = ::strata::train::total_steps(config);
  models::ModelConfig model = resolve_model(config);
  resolve_machine(config, model);
  set_compute_threads(static_cast<int>(*config.device.threads));
  flush_denormals();
  auto tokenizer = resolve_tokenizer(config, model, files, store.stored_tokenizer().value_or(Path()));
  if (tokenizer && !model.eos_id) model.eos_id = tokenizer->end_of_text_id();
  // A family's own ids mean nothing in a smaller vocabulary.
  for (auto* id : {&model.bos_id, &model.eos_id}) {
    if (!*id || **id < model.vocab_size) continue;
    *id = std::nullopt;
    if (tokenizer) *id = tokenizer->end_of_text_id();
  }
  RunData data = resolve_data(config, model, tokenizer ? &*tokenizer : nullptr, files);
  auto set = compile_run(config, model);
  if (config.memory.recompute == Recompute::kAuto) {
    config.memory.recompute =
        static_cast<Recompute>(static_cast<int>(set->programs[kTrainProgram].recompute) + 1);
  }
  for (const Change& change : changes)
    log_info("changed: {} = {} → {}", change.key, change.before, change.after);

  Trainer trainer(config, changes, model, std::move(tokenizer), data, store, files, stop);
  describe(config, model, *set, data, trainer.total_steps());
  if (options.dry_run) {
    const auto weights = static_cast<uint64_t>(models::parameter_count(model)) * 4;
    checkpoint::check_space(files, store.folder(), 3 * weights, "a checkpoint");
    log_info("dry run: everything is in order; nothing was trained");
    return {RunEnd::kDryRun, 0, 0};
  }
  store.store_config(config, machine_line(hardware::detect_cpu(static_cast<int>(*config.device.threads))));
  const int64_t done = trainer.start(std::move(set), options.resume, options.accept_changes);
  if (done >= trainer.total_steps()) {
    trainer.complete();
    log_info(
        "{} has finished its {} steps; to go on: --set training.steps={} --accept-changes (the learning rate "
        "keeps its curve: schedule.steps = {})",
        store.folder().string(), done, 2 * done, *config.schedule.steps);
    return {RunEnd::kFinished, done, 0};
  }
  if (done > 0) log_info("resumed after step {}", done);
  return trainer.run();
}

}  // namespace strata::train
