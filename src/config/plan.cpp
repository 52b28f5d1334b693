#include "config/plan.h"

#include <algorithm>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/parallel.h"
#include "config/objective.h"
#include "config/ramp.h"

namespace strata::config {
namespace {

// The run's training texts end with `end`, so generation stops at it, too.
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

// The model with the special-token ids of its tokenizer.
models::ModelConfig with_ids(models::ModelConfig model, const RunConfig& config,
                             const data::Tokenizer* tokenizer) {
  std::optional<int64_t> end;
  if (tokenizer != nullptr) end = tokenizer->end_of_text_id();
  const auto beyond = [&](int64_t id) { return id >= model.vocab_size; };
  if (end && beyond(*end)) end = std::nullopt;
  if (tokenizer != nullptr && config.model.from.empty()) take_ids(model, *tokenizer);
  // A family's default ids are meaningless in a smaller vocabulary.
  std::erase_if(model.more_eos_ids, beyond);
  std::erase_if(model.generation_eos_ids, beyond);
  for (auto* id : {&model.bos_id, &model.eos_id}) {
    if (*id && beyond(**id)) *id = end;
  }
  // With several end tokens all remain; the token that ends the run's texts is one of them.
  if (!config.model.from.empty() && end) add_end(model, *end);
  if (!model.eos_id) model.eos_id = end;
  for (auto* id : {&model.pad_id, &model.start_id}) {
    if (*id && **id >= model.vocab_size) *id = std::nullopt;
  }
  // The padding id must not equal the token that ends the run's texts, which the model must learn.
  if (model.pad_id && (model.pad_id == model.eos_id || (end && model.pad_id == *end)))
    model.pad_id = std::nullopt;
  return model;
}

// A step without a target learns nothing; if no step has one, the data are wrong.
void check_targets(const data::SampleSource& samples, const RunData& data) {
  if (samples.has_targets()) return;
  throw DataError(
      "[data] found {} training tokens, but none can be predicted from other tokens of its document; give "
      "longer documents, check the files' end_of_text_id, or set data.pack = \"stream\"",
      data.train_tokens);
}

// Rows with empty positions hold fewer tokens, so that training.tokens takes more steps. If the data end
// before the steps do, so does the learning-rate schedule. `open`: the horizon is still to be chosen.
std::vector<Choice> fit_to_data(const RunConfig& config, const models::ModelConfig& model,
                                const data::Tokenizer* tokenizer, const RunData& data, bool open) {
  const auto is_bounded = [](const auto& source) { return source.max_epochs > 0 || source.max_tokens > 0; };
  const auto& sources = data.sources;
  const bool bounded =
      !config.data.epochs.is_word() || std::any_of(sources.begin(), sources.end(), is_bounded);
  const data::SampleOptions options = sample_options(config, model, tokenizer);
  const bool packed = options.pack == data::Pack::kBestFit;
  // Packed rows cover the data once, and every causal row has targets.
  const bool checks = !packed || options.objective.kind != data::Objective::kCausal;
  const bool fits = open && (bounded || (packed && config.training.tokens));
  if (!checks && !fits) return {};
  const data::SampleSource samples(sources, options);
  if (checks) check_targets(samples, data);
  if (!fits) return {};
  std::vector<Choice> made;
  int64_t horizon = *config.schedule.steps;
  if (config.training.tokens) {
    horizon = Ramps(config).steps(0, {.tokens = *config.training.tokens}, samples.filled());
    made = {chosen("schedule.steps", horizon, "training.tokens in whole steps")};
  }
  if (samples.total_samples() == data::Mixture::kUnbounded) return made;
  const int64_t steps = Ramps(config).steps(0, {.samples = samples.total_samples()}, samples.filled());
  if (steps >= horizon) return made;
  log_warning(
      "the data end after {} steps, before the requested {}; the run and the learning-rate schedule end there too",
      steps, horizon);
  return {chosen("schedule.steps", std::max<int64_t>(1, steps), "the data end there")};
}

// Rejects a model that can never fit before minutes are spent on reading text.
// `from`: where the budget comes from, empty if the user set it.
void check_budget(const RunConfig& config, const models::ModelConfig& model, const std::string& from) {
  const std::string why = from.empty() ? "" : fmt::format(" ({})", from);
  const auto budget = static_cast<double>((*config.memory.budget).count);
  const double weights = 8 * static_cast<double>(models::parameter_count(model));
  if (weights > budget) {
    throw ConfigError(
        "[memory.budget] weights and gradients of the model take {}, but memory.budget allows {}{}; choose a "
        "smaller model or raise memory.budget",
        human_bytes(weights), human_bytes(budget), why);
  }
  // The loader holds this step's batch and those that it prepares.
  const double batch = 64 * static_cast<double>(config.training.global_batch_size) *
                       static_cast<double>(config.training.sequence_length);
  if (batch > budget) {
    throw ConfigError(
        "[training.global_batch_size] the token ids of a step's {} sequences of {} tokens take {}, but "
        "memory.budget allows {}{}; lower it or training.sequence_length",
        config.training.global_batch_size, config.training.sequence_length, human_bytes(batch),
        human_bytes(budget), why);
  }
}

// Whether a micro-batch of another size would change more than the last bits of the result.
bool learns_over_micro_batches(const RunConfig& config, const models::ModelConfig& model) {
  if (model.experts.count == 0) return false;
  return config.moe.balance != models::Experts::Balance::kSequence ||
         (model.experts.capacity.bounds() && !model.experts.capacity.over_sequence);
}

Choices begin(const RunConfig& asked, const PlanOptions& options) {
  Choices choices(asked);
  choices.take(choose_degrees(asked, options.place.ranks));
  if (options.stored) choices.keep(keep_resolved(choices.config(), *options.stored));
  choices.take(choose_device(choices.config(), options.place, options.described.has_value()));
  const MachineShare share = options.share       ? *options.share
                             : options.described ? share_of_device(options.described->device)
                                                 : share_of_rank(choices.config(), options.place);
  choices.take(choose_machine(choices.config(), options.place, share));
  return choices;
}

// The choices as --set arguments: keys whose word, or -1, left the choice to the program. The tokenizer
// becomes a file of the run.
std::vector<std::string> left_open(const std::vector<Choice>& choices) {
  std::vector<std::string> open;
  for (const Choice& choice : choices) {
    if (choice.key.starts_with("tokenizer.")) continue;
    if (choice.from == "\"auto\"" || choice.from == "\"training\"" || choice.from == "-1")
      open.push_back(choice.key + "=" + choice.from);
  }
  return open;
}

class Planner {
 public:
  Planner(const RunConfig& asked, const PlanOptions& options)
      : asked_(asked), options_(options), choices_(begin(asked, options)), begun_(choices_.config()) {}

  std::shared_ptr<const RunPlan> make() {
    plan_.asked = asked_;
    plan_.host_ranks = std::max(1, options_.place.local_ranks);
    plan_.described = options_.described;
    choices_.take(choose_horizon(config()));
    plan_.model = options_.model ? *options_.model : resolve_model(config());
    choices_.take(choose_objective(config(), plan_.model));
    const hardware::DeviceSpec device = target_of(config(), options_.described).spec;
    choices_.take(choose_precision(config(), device));
    choices_.take(choose_micro_batch(config(), device));
    require_ramps(config(), plan_.model);
    if (config().parallel.zero.is_word())
      choices_.take({chosen("parallel.zero", int64_t{0}, "the lowest stage that memory.budget holds")});
    set_compute_threads(static_cast<int>(*config().device.threads));
    if (options_.data == PlanOptions::Data::kPrepared) prepare_data();
    if (options_.data == PlanOptions::Data::kFromWhatIsThere) take_what_is_there();
    if (!options_.places.empty()) compile_fitting();
    plan_.config = config();
    plan_.choices = choices_.all();
    plan_.config.run.chosen = left_open(plan_.choices);
    return std::make_shared<const RunPlan>(std::move(plan_));
  }

 private:
  const RunConfig& config() const { return choices_.config(); }

  // The reason of the chosen memory.budget; empty if the user set it.
  std::string budget_from() const {
    const auto& all = choices_.all();
    const auto made = std::find_if(all.begin(), all.end(),
                                   [](const Choice& choice) { return choice.key == "memory.budget"; });
    return made == all.end() ? "" : made->why;
  }

  void take_tokenizer(RunTokenizer&& found) {
    choices_.take(std::move(found.choices));
    plan_.tokenizer = std::move(found.tokenizer);
    plan_.model = with_ids(std::move(plan_.model), config(), plan_.tokens());
  }

  void prepare_data() {
    const bool open = begun_.schedule.steps.is_word();
    check_budget(config(), plan_.model, budget_from());
    take_tokenizer(
        resolve_tokenizer(config(), plan_.model, options_.files, options_.stored_tokenizer, options_.check));
    plan_.data = resolve_data(config(), plan_.model, plan_.tokens(), options_.files, options_.check);
    choices_.take(plan_.data.choices);
    choices_.take(fit_to_data(config(), plan_.model, plan_.tokens(), plan_.data, open));
    const int64_t horizon = *config().schedule.steps;
    if (begun_.schedule.warmup_steps.is_word()) choices_.take(choose_warmup(horizon));
    if (open && horizon < *config().schedule.warmup_steps) {
      log_warning(
          "schedule.warmup_steps: found {}, but the data end after {} steps: the learning rate never reaches "
          "optimizer.lr",
          *config().schedule.warmup_steps, horizon);
    }
  }

  void take_what_is_there() {
    RunTokenizer known = known_tokenizer(config(), plan_.model, options_.stored_tokenizer);
    const bool trained = known.trained;
    take_tokenizer(std::move(known));
    if (plan_.tokenizer && trained) plan_.data.tasks = resolve_tasks(config(), plan_.model, plan_.tokens());
  }

  OpenToFit what_is_open() const {
    bool keeps_size = false;
    if (options_.stored) {
      const RunConfig& stored = *options_.stored;
      keeps_size = begun_.training.micro_batch_size == stored.training.micro_batch_size;
      // The run's stored choices need the memory for which they were made.
      if (keeps_size && begun_.parallel.zero == stored.parallel.zero && stored.memory.budget.value &&
          config().memory.budget.value->count >= stored.memory.budget.value->count)
        return {};
    }
    return {.zero = asked_.parallel.zero.is_word(),
            .micro_batch = asked_.training.micro_batch_size.is_word() &&
                           !(keeps_size && learns_over_micro_batches(config(), plan_.model))};
  }

  std::vector<Choice> choices_of(const Fit& fit) const {
    std::vector<Choice> made;
    if (fit.zero != *config().parallel.zero)
      made.push_back(chosen("parallel.zero", fit.zero, "the lowest stage that memory.budget holds"));
    if (fit.micro_batch != *config().training.micro_batch_size) {
      made.push_back(
          chosen("training.micro_batch_size", fit.micro_batch, "the largest that memory.budget holds"));
    }
    if (!fit.keeps_recompute && asked_.memory.recompute.is_word() && !config().memory.recompute.is_word())
      made.push_back(chosen("memory.recompute", "auto", "to fit memory.budget"));
    return made;
  }

  // Compiles for `places` in turn until one does not fit, and returns that one.
  std::optional<int32_t> first_tight(const RunConfig& tried, const std::vector<int32_t>& places) {
    plan_.stages.clear();
    for (const int32_t place : places) {
      if (!compile(tried, place).fits) return place;
    }
    return std::nullopt;
  }

  const program::Compiled& compile(const RunConfig& tried, int32_t place) {
    if (!shared_) shared_.emplace(tried, plan_.model);
    return plan_.stages[place] = compile_run(tried, plan_.model, *shared_, plan_.data.tasks, place,
                                             plan_.host_ranks, options_.described);
  }

  // memory.budget decides the open choices: the lowest ZeRO stage with which weights, gradients and optimizer
  // states fit, then the largest micro-batch.
  void compile_fitting() {
    const int32_t own = options_.places.front();
    const OpenToFit open = what_is_open();
    // A choice for one rank of a pipeline applies to all.
    std::vector<int32_t> asked_first;
    for (int32_t other = 0; (open.zero || open.micro_batch) && other < config().parallel.pipeline; ++other)
      if (other != own) asked_first.push_back(other);
    asked_first.push_back(own);
    Fit fit{.zero = *config().parallel.zero,
            .micro_batch = *config().training.micro_batch_size,
            .keeps_recompute = asked_.memory.recompute.is_word() && !config().memory.recompute.is_word()};
    std::optional<int32_t> tight;
    for (std::optional<Fit> next = fit; next;) {
      fit = *next;
      tight = first_tight(with(config(), choices_of(fit)), asked_first);
      if (!tight) break;
      const bool by_weights = plan_.set(*tight)->persistent_bytes > (*config().memory.budget).count;
      next = smaller_fit(config(), open, fit, by_weights);
    }
    choices_.take(choices_of(fit));
    if (tight && !options_.keep_unfit) throw program::DoesNotFit(plan_.set(*tight), budget_from());
    plan_.tight_place = tight;
    for (const int32_t place : options_.places) {
      if (plan_.stages.contains(place)) continue;
      if (!compile(config(), place).fits && !options_.keep_unfit)
        throw program::DoesNotFit(plan_.set(place), budget_from());
    }
    // Ranks of a pipeline choose recompute separately; it does not change any bit.
    if (!tight && config().parallel.pipeline <= 1 && config().memory.recompute.is_word()) {
      choices_.take({chosen("memory.recompute", name_of(plan_.set(own)->programs[kTrainProgram].recompute),
                            "the least that memory.budget holds")});
    }
  }

  const RunConfig& asked_;
  const PlanOptions& options_;
  Choices choices_;
  const RunConfig begun_;  // before the model is read
  RunPlan plan_;
  std::optional<SharedByPlaces> shared_;  // nothing that is open while programs are compiled changes it
};

}  // namespace

RunConfig begun(const RunConfig& asked, const PlanOptions& options) {
  return begin(asked, options).config();
}

std::shared_ptr<const RunPlan> make_plan(const RunConfig& asked, const PlanOptions& options) {
  return Planner(asked, options).make();
}

std::vector<Change> changes_of(const RunConfig& stored, const RunPlan& plan) {
  std::vector<Change> changes = compare_for_resume(stored, plan.config);
  const auto hangs_on_memory = [](const Change& change) {
    return change.key.starts_with("parallel.") || change.key == "training.micro_batch_size" ||
           change.key == "memory.recompute";
  };
  if (plan.asked.memory.budget.is_word() && std::none_of(changes.begin(), changes.end(), hangs_on_memory))
    std::erase_if(changes, [](const Change& change) { return change.key == "memory.budget"; });
  return changes;
}

}  // namespace strata::config
