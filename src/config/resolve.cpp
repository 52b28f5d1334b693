#include "config/resolve.h"

#include <algorithm>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/parallel.h"
#include "config/objective.h"

namespace strata::config {
namespace {

// Texts that the run learns end with `end`: a text that is written ends with it, too.
void add_end(models::ModelConfig& model, int64_t end) {
  const auto has = [&](const std::vector<int64_t>& ids) {
    return std::find(ids.begin(), ids.end(), end) != ids.end();
  };
  if (!model.generation_eos_ids.empty() && !has(model.generation_eos_ids))
    model.generation_eos_ids.push_back(end);
  if (model.eos_id == end || has(model.more_eos_ids)) return;
  if (model.eos_id) model.more_eos_ids.insert(model.more_eos_ids.begin(), *model.eos_id);
  model.eos_id = end;
}

// The model's ids of special tokens become those of the tokenizer that it is trained with.
void take_tokenizer(models::ModelConfig& model, const RunConfig& config, const data::Tokenizer* tokenizer) {
  std::optional<int64_t> end;
  if (tokenizer != nullptr) end = tokenizer->end_of_text_id();
  const auto beyond = [&](int64_t id) { return id >= model.vocab_size; };
  if (end && beyond(*end)) end = std::nullopt;
  if (tokenizer != nullptr && config.model.from.empty()) take_ids(model, *tokenizer);
  // A family's own ids mean nothing in a smaller vocabulary.
  std::erase_if(model.more_eos_ids, beyond);
  std::erase_if(model.generation_eos_ids, beyond);
  for (auto* id : {&model.bos_id, &model.eos_id}) {
    if (*id && beyond(**id)) *id = end;
  }
  // Of several ends all stay; what ends the texts of the run is one of them.
  if (!config.model.from.empty() && end) add_end(model, *end);
  if (!model.eos_id) model.eos_id = end;
  for (auto* id : {&model.pad_id, &model.start_id}) {
    if (*id && **id >= model.vocab_size) *id = std::nullopt;
  }
  // Nor does its padding where that is what ends our texts, which must learn.
  if (model.pad_id && (model.pad_id == model.eos_id || (end && model.pad_id == *end)))
    model.pad_id = std::nullopt;
}

// A step without a target learns nothing; data in which no step has one are a mistake.
void check_targets(const data::SampleSource& samples, const RunData& data) {
  if (samples.has_targets()) return;
  throw DataError(
      "[data] found {} training tokens, and none of them is to be predicted from others of its document; "
      "give "
      "longer documents, check that the files' end_of_text_id is right, or set data.pack = \"stream\"",
      data.train_tokens);
}

// Steps in which rows have empty places hold fewer tokens, so that training.tokens takes more of them. Where
// the data end before the steps do, the learning rate's curve ends with them.
void fit_to_data(ResolvedRun& run, bool fix_horizon) {
  const auto is_bounded = [](const auto& source) { return source.max_epochs > 0 || source.max_tokens > 0; };
  const auto& sources = run.data.sources;
  const bool bounded =
      !run.config.data.epochs.is_word() || std::any_of(sources.begin(), sources.end(), is_bounded);
  const data::SampleOptions options =
      sample_options(run.config, run.model, run.tokenizer ? &*run.tokenizer : nullptr);
  const bool packed = options.pack == data::Pack::kBestFit;
  // Packed rows take a pass over the data, and of causal ones each has targets.
  const bool checks = !packed || options.objective.kind != data::Objective::kCausal;
  const bool fits = fix_horizon && (bounded || (packed && run.config.training.tokens));
  if (!checks && !fits) return;
  const data::SampleSource samples(sources, options);
  if (checks) check_targets(samples, run.data);
  if (!fits) return;
  if (run.config.training.tokens) {
    run.config.schedule.steps = steps_for_tokens(run.config, *run.config.training.tokens, samples.filled());
  }
  if (samples.total_samples() == data::Mixture::kUnbounded) return;
  const int64_t batch = run.config.training.global_batch_size;
  const int64_t steps = (samples.total_samples() + batch - 1) / batch;
  if (steps >= *run.config.schedule.steps) return;
  log_warning(
      "the data end after {} steps, before the {} asked for: so do the run and the learning rate's curve",
      steps, *run.config.schedule.steps);
  run.config.schedule.steps = std::max<int64_t>(1, steps);
}

// What can never fit is said before text is read for minutes.
void check_room(const RunConfig& config, const models::ModelConfig& model) {
  const auto budget = static_cast<double>((*config.memory.budget).count);
  const double weights = 8 * static_cast<double>(models::parameter_count(model));
  if (weights > budget) {
    throw ConfigError(
        "[memory.budget] weights and gradients of the model take {}, and {} are allowed; take a smaller "
        "model "
        "or raise memory.budget",
        human_bytes(weights), human_bytes(budget));
  }
  // What the loader holds of this step and of those that it prepares.
  const double batch = 64 * static_cast<double>(config.training.global_batch_size) *
                       static_cast<double>(config.training.sequence_length);
  if (batch > budget) {
    throw ConfigError(
        "[training.global_batch_size] a step's {} sequences of {} tokens take {} as ids alone, and "
        "memory.budget "
        "allows {}; lower it or training.sequence_length",
        config.training.global_batch_size, config.training.sequence_length, human_bytes(batch),
        human_bytes(budget));
  }
}

}  // namespace

ResolvedRun resolve(RunConfig config, const ResolveOptions& options) {
  ResolvedRun run{.config = std::move(config),
                  .model = {},
                  .tokenizer = {},
                  .data = {},
                  .micro_batch_open = false,
                  .zero_open = false};
  // The horizon of the curve is fixed at the first start.
  const bool fix_horizon = run.config.schedule.steps.is_word();
  const bool fix_warmup = run.config.schedule.warmup_steps.is_word();
  if (fix_horizon) run.config.schedule.steps = total_steps(run.config);
  if (fix_warmup) run.config.schedule.warmup_steps = auto_warmup_steps(*run.config.schedule.steps);
  run.model = resolve_model(run.config);
  resolve_objective(run.config, run.model);
  run.micro_batch_open = run.config.training.micro_batch_size.is_word();
  resolve_machine(run.config, options.place);
  run.zero_open = run.config.parallel.zero.is_word();
  if (run.zero_open) run.config.parallel.zero = 0;
  set_compute_threads(static_cast<int>(*run.config.device.threads));
  const auto tokenizer = [&] { return run.tokenizer ? &*run.tokenizer : nullptr; };
  if (options.data == ResolveOptions::Data::kPrepared) {
    check_room(run.config, run.model);
    run.tokenizer =
        resolve_tokenizer(run.config, run.model, options.files, options.stored_tokenizer, options.check);
    take_tokenizer(run.model, run.config, tokenizer());
    run.data = resolve_data(run.config, run.model, tokenizer(), options.files, options.check);
    fit_to_data(run, fix_horizon);
    const int64_t horizon = *run.config.schedule.steps;
    if (fix_warmup) run.config.schedule.warmup_steps = auto_warmup_steps(horizon);
    if (fix_horizon && horizon < *run.config.schedule.warmup_steps) {
      log_warning(
          "schedule.warmup_steps: found {}, more than the {} steps that the data give: the learning rate "
          "never "
          "reaches optimizer.lr",
          *run.config.schedule.warmup_steps, horizon);
    }
    return run;
  }
  KnownTokenizer known = known_tokenizer(run.config, run.model, options.stored_tokenizer);
  run.tokenizer = std::move(known.tokenizer);
  take_tokenizer(run.model, run.config, tokenizer());
  if (run.tokenizer && known.trained) run.data.tasks = resolve_tasks(run.config, run.model, tokenizer());
  return run;
}

namespace {

// The next smaller number of sequences that divides those of a rank's step and that ranks can share.
std::optional<int64_t> smaller_micro_batch(const RunConfig& config) {
  for (int64_t size = *config.training.micro_batch_size - 1; size >= 1; --size)
    if (sequences_of_part(config) % size == 0 && has_equal_rows(config, size)) return size;
  return std::nullopt;
}

// What was left to the program is what memory.budget holds: the lowest stage of ZeRO with which weights,
// gradients and states fit, then the largest micro-batch.
std::shared_ptr<const program::ProgramSet> compile_fitting(ResolvedRun& run, int32_t place) {
  for (;;) {
    try {
      // What is chosen for one rank of a pipeline holds for all.
      if (run.micro_batch_open || run.zero_open) {
        for (int32_t other = 0; other < run.config.parallel.pipeline; ++other) {
          if (other != place) compile_run(run.config, run.model, run.data.tasks, other);
        }
      }
      return compile_run(run.config, run.model, run.data.tasks, place);
    } catch (const program::DoesNotFit& error) {
      const bool by_weights = error.set()->persistent_bytes > (*run.config.memory.budget).count;
      const auto smaller = smaller_micro_batch(run.config);
      const bool shards = run.config.parallel.shard > 1 && *run.config.parallel.zero < 3;
      if (run.zero_open && shards && (by_weights || !run.micro_batch_open || !smaller)) {
        run.config.parallel.zero = *run.config.parallel.zero + 1;
        continue;
      }
      if (!run.micro_batch_open || by_weights || !smaller) throw;
      run.config.training.micro_batch_size = *smaller;
    }
  }
}

}  // namespace

std::shared_ptr<const program::ProgramSet> compile(ResolvedRun& run, int32_t place) {
  auto set = compile_fitting(run, place);
  run.micro_batch_open = run.zero_open = false;  // chosen, for all ranks of a pipeline
  // Ranks of a pipeline choose it each for themselves; it changes no bit.
  if (run.config.parallel.pipeline <= 1 && run.config.memory.recompute == Recompute::kAuto) {
    run.config.memory.recompute =
        static_cast<Recompute>(static_cast<int>(set->programs[kTrainProgram].recompute) + 1);
  }
  return set;
}

}  // namespace strata::config
