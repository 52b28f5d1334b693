#include "train/steering.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "config/objective.h"
#include "train/evaluations.h"

namespace strata::training {

bool apply_settings(const std::vector<Effect>& settings, config::RunConfig& config, RunPosition& position) {
  if (settings.empty()) return false;
  std::vector<config::NewSetting> values;
  for (const Effect& one : settings) values.push_back({one.key, one.value});
  const config::RunConfig before = config;
  config = config::with_settings(config, values);
  if (before.data.skip != config.data.skip) position.continue_from(position.state());
  return !config::compare(before, config).empty();
}

bool apply_journal(const Journal& journal, config::RunConfig& config, RunPosition& position) {
  const int64_t done = position.step();
  const bool changed = apply_settings(journal.settings(done, done), config, position);
  if (const auto sequences = journal.batch_at(done)) position.set_batch(*sequences);
  if (const auto sample = journal.jump_at(done)) position.jump_to(*sample);
  return changed;
}

Steering::Steering(FileSystem& files, const RunInputs& inputs, const program::Executor& executor,
                   config::RunConfig& config)
    : inputs_(inputs),
      executor_(executor),
      config_(config),
      evaluates_(config.eval.interval.kind != config::Interval::Kind::kNever),
      has_snapshots_(config.recovery.snapshot.kind != config::Interval::Kind::kNever) {
  if (inputs.is_first()) folder_.emplace(files, config.run.folder);
}

std::string Steering::poll(const RunPosition& position, bool ends) {
  std::string accepted;
  if (!folder_) return accepted;
  config::RunConfig config = config_;
  for (const Request& request : folder_->take(position.step())) {
    try {
      check(request, position, ends, config);
      accepted += to_json(request);
      // A setting that comes after it would not take effect.
      ends = ends || request.what == Request::What::kStop;
      if (request.what != Request::What::kSet) waiting_.push_back({request, position.step()});
    } catch (const Error& error) {
      log_warning("request {} by {} was refused: {}", request.id, request.by, error.what());
      folder_->answer(request, position.step(), std::string(kRefused) + error.what());
    }
  }
  return accepted;
}

void Steering::check(const Request& request, const RunPosition& position, bool ends,
                     config::RunConfig& config) const {
  if (request.what != Request::What::kSet) return;
  if (ends) {
    throw ConfigError("[set] the run ends after step {}; give --set to the command that resumes it",
                      position.step());
  }
  config::RunConfig after = config::with_settings(config, request.settings);
  if (const std::string why = obstacle(after, position); !why.empty()) throw ConfigError("[set] {}", why);
  config = std::move(after);
}

std::string Steering::obstacle(const config::RunConfig& after, const RunPosition& position) const {
  if (!evaluates_ && after.eval.interval.kind != config::Interval::Kind::kNever) {
    return "eval.interval: the run was started without evaluations; stop it and resume it with --set "
           "eval.interval=…";
  }
  if (!has_snapshots_ && after.recovery.snapshot.kind != config::Interval::Kind::kNever) {
    return "recovery.snapshot: the run was started without snapshots and has planned no memory for them; stop "
           "it and resume it with --set recovery.snapshot=…";
  }
  const auto& programs = executor_.set().programs;
  if (config::writes_samples(after, inputs_.model) &&
      (programs.size() <= config::kDecodeProgram ||
       programs[config::kDecodeProgram].request.kind != program::Kind::kDecode)) {
    return "eval.sample_tokens: the run was started without samples; stop it and resume it with --set "
           "eval.sample_tokens=…";
  }
  check_prompts(after, inputs_.tokenizer, executor_.set());
  if (after.data.skip != config_.data.skip) {
    const RunInputs inputs{after, inputs_.model, inputs_.tokenizer, inputs_.data, inputs_.ranks};
    if (RunPosition(inputs, position.state()).is_at_end())
      return "data.skip: no sample would remain for the next step";
  }
  return "";
}

SteeringEffects Steering::apply(std::string_view text) {
  SteeringEffects effects;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    const Request request = parse_request(text.substr(0, end));
    text.remove_prefix(end + 1);
    effects.stop = effects.stop || request.what == Request::What::kStop;
    effects.save = effects.save || request.what == Request::What::kSave;
    if (request.what != Request::What::kSet) continue;
    apply(request.settings, request.by, effects);
    if (folder_) applied_.push_back(request);
  }
  return effects;
}

void Steering::apply(const std::vector<config::NewSetting>& settings, const std::string& by,
                     SteeringEffects& effects) {
  config::RunConfig after = config::with_settings(config_, settings);
  for (config::Change& change : config::compare(config_, after))
    effects.changes.push_back({std::move(change), by});
  for (const config::NewSetting& setting : settings) effects.settings.push_back({setting, by});
  config_ = std::move(after);
}

void Steering::confirm(const SteeringEffects& effects, int64_t step, Reporter& reporter) {
  for (const Steered& one : effects.changes) {
    const config::Change& change = one.change;
    reporter.event("steered", step,
                   {{"key", change.key}, {"before", change.before}, {"after", change.after}, {"by", one.by}});
    if (folder_) {
      log_info("from step {} on: {} = {} → {} (by {})", step, change.key,
               change.before.empty() ? "unset" : change.before, change.after.empty() ? "unset" : change.after,
               one.by);
    }
  }
  for (const Request& request : std::exchange(applied_, {})) folder_->answer(request, step, kDone);
}

void Steering::saved(bool is_end) {
  std::vector<Waiting> others;
  for (Waiting& one : std::exchange(waiting_, {})) {
    if (one.request.what == Request::What::kStop && !is_end) {
      others.push_back(std::move(one));
    } else {
      folder_->answer(one.request, one.step, kDone);
    }
  }
  waiting_ = std::move(others);
}

}  // namespace strata::training
