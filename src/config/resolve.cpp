#include "config/resolve.h"

#include <algorithm>

#include "base/log.h"
#include "base/parallel.h"
#include "config/objective.h"

namespace strata::config {
namespace {

// The model's ids of special tokens become those of the tokenizer that it is trained with.
void take_tokenizer(models::ModelConfig& model, const RunConfig& config, const data::Tokenizer* tokenizer) {
  std::optional<int64_t> end;
  if (tokenizer != nullptr) end = tokenizer->end_of_text_id();
  if (tokenizer != nullptr && config.model.from.empty()) take_ids(model, *tokenizer);
  if (!model.eos_id) model.eos_id = end;
  // A family's own ids mean nothing in a smaller vocabulary.
  for (auto* id : {&model.bos_id, &model.eos_id}) {
    if (*id && **id >= model.vocab_size) *id = end;
  }
  for (auto* id : {&model.pad_id, &model.start_id}) {
    if (*id && **id >= model.vocab_size) *id = std::nullopt;
  }
  // Nor does its padding where that is what ends our texts, which must learn.
  if (model.pad_id && (model.pad_id == model.eos_id || (end && model.pad_id == *end)))
    model.pad_id = std::nullopt;
}

// Where the data end before the steps do, the learning rate's curve ends with them.
void end_with_data(ResolvedRun& run) {
  const auto bounded = [](const auto& source) { return source.max_epochs > 0 || source.max_tokens > 0; };
  const auto& sources = run.data.sources;
  if (run.config.data.epochs.is_word() && std::none_of(sources.begin(), sources.end(), bounded)) return;
  const data::SampleSource samples(
      sources, sample_options(run.config, run.model, run.tokenizer ? &*run.tokenizer : nullptr));
  if (samples.total_samples() == data::Mixture::kUnbounded) return;
  const int64_t batch = run.config.training.global_batch_size;
  const int64_t steps = (samples.total_samples() + batch - 1) / batch;
  if (steps >= *run.config.schedule.steps) return;
  log_warning(
      "the data end after {} steps, before the {} asked for: so do the run and the learning rate's curve",
      steps, *run.config.schedule.steps);
  if (steps < run.config.schedule.warmup_steps) {
    log_warning(
        "schedule.warmup_steps: found {}, more than these {} steps: the learning rate never reaches "
        "optimizer.lr",
        run.config.schedule.warmup_steps, steps);
  }
  run.config.schedule.steps = std::max<int64_t>(1, steps);
}

}  // namespace

ResolvedRun resolve(RunConfig config, const ResolveOptions& options) {
  ResolvedRun run{.config = std::move(config), .model = {}, .tokenizer = {}, .data = {}};
  // The horizon of the curve is fixed at the first start.
  const bool fix_horizon = run.config.schedule.steps.is_word();
  if (fix_horizon) run.config.schedule.steps = total_steps(run.config);
  run.model = resolve_model(run.config);
  resolve_objective(run.config, run.model);
  resolve_machine(run.config);
  set_compute_threads(static_cast<int>(*run.config.device.threads));
  const auto tokenizer = [&] { return run.tokenizer ? &*run.tokenizer : nullptr; };
  if (options.data == ResolveOptions::Data::kPrepared) {
    run.tokenizer =
        resolve_tokenizer(run.config, run.model, options.files, options.stored_tokenizer, options.check);
    take_tokenizer(run.model, run.config, tokenizer());
    run.data = resolve_data(run.config, run.model, tokenizer(), options.files, options.check);
    if (fix_horizon) end_with_data(run);
    return run;
  }
  KnownTokenizer known = known_tokenizer(run.config, run.model, options.stored_tokenizer);
  run.tokenizer = std::move(known.tokenizer);
  take_tokenizer(run.model, run.config, tokenizer());
  if (run.tokenizer && known.trained) run.data.tasks = resolve_tasks(run.config, run.model, tokenizer());
  return run;
}

std::shared_ptr<const program::ProgramSet> compile(ResolvedRun& run) {
  auto set = compile_run(run.config, run.model, run.data.tasks);
  if (run.config.memory.recompute == Recompute::kAuto) {
    run.config.memory.recompute =
        static_cast<Recompute>(static_cast<int>(set->programs[kTrainProgram].recompute) + 1);
  }
  return set;
}

}  // namespace strata::config
