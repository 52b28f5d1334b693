#include "train/trainer.h"

#include <algorithm>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/parallel.h"
#include "base/pin.h"
#include "base/signals.h"
#include "config/objective.h"
#include "hardware/device_spec.h"
#include "program/explain.h"
#include "train/disk_need.h"
#include "train/training_loop.h"

namespace strata::train {
namespace {

std::string machine_line(const hardware::DeviceSpec& device) {
  return fmt::format("{}, {} threads, {}", device.name, device.threads, device.isa.str());
}

// The configuration that the run in this folder was started with, if it binds this start.
std::optional<config::RunConfig> binding_config(const RunOptions& options, const RunStore& store) {
  if (options.resume == "never" && store.holds_run()) {
    throw ConfigError(
        "[{}] holds a run already and --resume never was given; choose another run.folder or remove it",
        store.folder().string());
  }
  auto stored = store.stored_config();
  if (!stored) return std::nullopt;
  const auto changes = config::compare_for_resume(*stored, options.config);
  // Before the first checkpoint nothing binds a run to what it was started with.
  const bool free = std::all_of(changes.begin(), changes.end(), [](const config::Change& c) {
    return c.resume == config::ResumeClass::kFree;
  });
  if (!free && !store.holds_checkpoints()) return std::nullopt;
  config::require_resumable(changes, options.accept_changes);
  return stored;
}

int threads_of(const config::RunConfig& config) {
  return config.device.threads.is_word() ? available_processors() : static_cast<int>(*config.device.threads);
}

void describe(const config::RunConfig& config, const models::ModelConfig& model,
              const program::ProgramSet& set, const config::RunData& data,
              const std::vector<config::SourcePlan>& plan, int64_t total_steps) {
  const double parameters = static_cast<double>(models::parameter_count(model));
  log_info("model: {} parameters ({}), {} layers of width {}", human_count(parameters), model.family->name,
           models::layers_of(model), model.hidden_size);
  log_info(
      "data: {} training tokens, {} a step, {} steps: {}",
      human_count(static_cast<double>(data.train_tokens)),
      human_count(static_cast<double>(config.training.global_batch_size * config.training.sequence_length)),
      total_steps, config::to_string(plan));
  for (const std::string& warning : config::repetition_warnings(plan)) log_warning("{}", warning);
  log_info("program: {} instructions a micro-batch of {} x {}, {}, recompute {}, arena {}",
           set.programs[config::kTrainProgram].micro_batch_instructions(), *config.training.micro_batch_size,
           config.training.sequence_length, name_of(config::activation_dtype(config)),
           name_of(set.programs[config::kTrainProgram].recompute),
           human_bytes(static_cast<double>(set.arena_bytes)));
}

// Better found now than at the first evaluation.
void check_prompts(const config::RunConfig& config, const data::Tokenizer* tokenizer,
                   const program::ProgramSet& set) {
  if (tokenizer == nullptr || !config::writes_samples(config, set.options.model)) return;
  const program::Request& reads = set.programs[config::kPrefillProgram].request;
  const int64_t room = reads.encoder_length > 0
                           ? reads.encoder_length
                           : std::min(set.options.cache_capacity, set.options.model.max_sequence_length());
  for (const std::string& prompt : config.eval.sample_prompts) {
    const auto size = std::ssize(tokenizer->encode(prompt, {.add_special_tokens = reads.encoder_length > 0}));
    if (size > room)
      throw ConfigError("[eval.sample_prompts] \"{}\" has {} tokens and there is room for {}; shorten it",
                        prompt, size, room);
  }
}

// A budget may allow more than the machine has.
void check_memory(const program::ProgramSet& set) {
  const int64_t there = holdable_memory();
  if (there == 0 || set.arena_bytes <= there) return;
  throw WorldError(
      "[memory] the run needs {} and {} are free on this machine; lower memory.budget, or leave it to "
      "\"auto\"",
      human_bytes(static_cast<double>(set.arena_bytes)), human_bytes(static_cast<double>(there)));
}

}  // namespace

TrainResult train_run(const RunOptions& options, const std::function<bool()>& stop) {
  FileSystem& files = options.files != nullptr ? *options.files : posix_file_system();
  const config::FaultHook hooks[] = {config::check_model};
  config::require_valid(options.config, hooks);
  for (const config::Fault& warning : config::warnings(options.config))
    log_warning("{}", warning.to_string());
  RunStore store(files, options.config.run.folder);
  const std::optional<config::RunConfig> stored = binding_config(options, store);
  config::RunConfig config = stored ? config::keep_resolved(options.config, *stored) : options.config;
  config::require_valid(config, hooks);

  set_compute_threads(threads_of(config));
  const PinnedThreads pinned(config.device.pin);
  flush_denormals();
  config::ResolvedRun resolved = config::resolve(
      std::move(config),
      {.files = files, .stored_tokenizer = store.stored_tokenizer().value_or(Path()), .check = [&stop] {
         if (stop()) throw Interrupted();
       }});
  auto set = config::compile(resolved);
  check_memory(*set);
  check_prompts(resolved.config, resolved.tokenizer ? &*resolved.tokenizer : nullptr, *set);
  const config::RunConfig& chosen = resolved.config;
  std::vector<config::Change> changes;
  if (stored) changes = config::compare_for_resume(*stored, chosen);
  for (const config::Change& change : changes) {
    log_info("changed: {} = {} → {}", change.key, change.before.empty() ? "unset" : change.before,
             change.after.empty() ? "unset" : change.after);
  }

  TrainingLoop loop(chosen, changes, resolved.model, resolved.tokenizer, resolved.data, store, files, stop,
                    store.likely_state(options.resume));
  describe(chosen, resolved.model, *set, resolved.data, loop.plan(), loop.total_steps());
  check_disk(files, store.folder(), chosen, resolved.model, *set, loop.total_steps());
  if (const optim::ScheduleConfig curve = config::schedule_of(chosen); loop.total_steps() < curve.steps) {
    log_info(
        "the learning rate is {:.3g} at the run's last step: its curve is one of {} steps (schedule.steps)",
        optim::learning_rate(curve, loop.total_steps()), curve.steps);
  }
  if (options.dry_run) {
    if (options.resume != "auto" && options.resume != "never") named_checkpoint(options.resume);
    log_info("dry run: everything is in order; nothing was trained");
    return {RunEnd::kDryRun, 0, 0, program::fingerprint(*set)};
  }
  const std::string machine = machine_line(set->options.target.spec);
  const int64_t done = loop.start(std::move(set), options.resume, options.accept_changes);
  // Not before: a start that was refused changes nothing.
  store.store_config(chosen, machine);
  if (done >= loop.total_steps()) {
    loop.complete();
    log_info(
        "{} has finished its {} steps; to go on: {} (the learning rate keeps its curve: schedule.steps = {})",
        store.folder().string(), done, loop.extension(), *chosen.schedule.steps);
    return {RunEnd::kFinished, done, 0};
  }
  save_before_stopping();
  if (done > 0) log_info("resumed after step {}", done);
  return loop.run();
}

}  // namespace strata::train
