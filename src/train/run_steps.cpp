#include "train/run_steps.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "checkpoint/checkpoint.h"
#include "observe/metrics.h"
#include "observe/run_history.h"
#include "train/past_run.h"
#include "train/run_position.h"
#include "train/steering.h"

namespace strata::training {
namespace {

constexpr const char* kVerb = "data find";

std::optional<int64_t> whole_number(const observe::MetricFields& fields, std::string_view name) {
  for (const observe::MetricField& field : fields)
    if (field.name == name)
      if (const auto* number = std::get_if<int64_t>(&field.value)) return *number;
  return std::nullopt;
}

// Whether a change of this key changes which samples a step has.
bool decides_samples(const std::string& key) {
  if (key == "training.steps" || key == "training.tokens") return false;  // only how many steps there are
  return key.starts_with("data.") || key.starts_with("training.") || key.starts_with("parallel.");
}

// Whether the key names texts: they may have moved, and a change of their content is reported as that of
// "data".
bool names_texts(const std::string& key) {
  return key == "data.train" || key == "data.build" || key == "data.text_field" ||
         key.starts_with("data.valid") ||
         (key.starts_with("data.source.") && (key.ends_with(".path") || key.ends_with(".name")));
}

}  // namespace

size_t RunSteps::History::start_of(int64_t step) const {
  const MadeStep* made = find(step);
  return made != nullptr ? made->start : std::max<size_t>(1, starts.size()) - 1;
}

const RunSteps::MadeStep* RunSteps::History::find(int64_t step) const {
  return step >= first && step <= last() ? &steps[static_cast<size_t>(step - first)] : nullptr;
}

RunSteps::History RunSteps::read_history(const Path& run) {
  History history;
  std::map<std::string, std::string> changes;  // by the next start
  observe::MetricsVisitor visitor;
  visitor.step = [&](int64_t step, const observe::MetricFields& fields) {
    if (history.steps.empty()) history.first = step;
    // Of two lines for a step, the later one counts.
    history.steps.resize(
        static_cast<size_t>(std::clamp<int64_t>(step - history.first, 0, std::ssize(history.steps))));
    history.steps.push_back({.first_sample = whole_number(fields, "first_sample"),
                             .tokens = whole_number(fields, "tokens"),
                             .start = std::max<size_t>(1, history.starts.size()) - 1});
  };
  visitor.event = [&](const observe::MetricsEvent& event) {
    if (event.event == "changed") changes[observe::text_of(event, "key")] = observe::text_of(event, "before");
    if (event.event == "branch") history.is_branch = true;
    if (event.event == "start" || event.event == "resume")
      history.starts.push_back(std::exchange(changes, {}));
  };
  observe::for_each_metric(run / "metrics.jsonl", visitor);
  return history;
}

RunSteps::RunSteps(FileSystem& files, const Path& run)
    : files_(files), run_(run), history_(read_history(run)) {
  const RunStore store(files, run, RunStore::Role::kReader);
  for (const auto& listed : checkpoint::list_checkpoints(store.checkpoints()))
    checkpoints_.emplace(listed.step, listed.path);
  if (const auto journal = store.journal()) {
    journal_ = *journal;
  } else if (!checkpoints_.empty()) {
    if (const auto state = state_at(checkpoints_.rbegin()->first)) journal_ = state->journal;
  }
  find_first();
}

std::optional<TrainingState> RunSteps::state_at(int64_t step) const {
  const auto found = checkpoints_.find(step);
  if (found == checkpoints_.end()) return std::nullopt;
  const Path path = found->second / "state.json";
  try {
    return training_state_from_json(read_file(path), path.string());
  } catch (const Error&) {  // `strata checkpoint verify` reports it
    return std::nullopt;
  }
}

// The first step whose samples are known: from then on the run has one history and the tokens that it has now.
void RunSteps::find_first() {
  first_ = history_.first;
  if (history_.steps.empty() && !checkpoints_.empty()) first_ = checkpoints_.rbegin()->first + 1;
  if (first_ > 1) {
    why_ = fmt::format("steps up to {} were made by the run that this one continues", first_ - 1);
  }
  for (size_t start = 1; start < history_.starts.size(); ++start) {
    for (const auto& [key, before] : history_.starts[start]) {
      const bool lost = key == "data" || (decides_samples(key) && !names_texts(key) && before.empty());
      const bool passed = history_.steps.empty() || history_.steps.front().start >= start;
      if (!lost || passed) continue;
      const auto after = std::partition_point(history_.steps.begin(), history_.steps.end(),
                                              [&](const MadeStep& step) { return step.start < start; });
      first_ = history_.first + (after - history_.steps.begin());
      why_ = fmt::format("{} changed after step {}, so that the samples of earlier steps are not known",
                         key == "data" ? "the training tokens" : key, first_ - 1);
    }
  }
  if (first_ == 1) return;
  for (auto next = checkpoints_.lower_bound(first_ - 1); next != checkpoints_.end(); ++next) {
    if (const auto state = state_at(next->first); state && state->next_sample) {
      if (next->first >= first_)
        why_ += fmt::format(", nor those up to the oldest checkpoint, {}", next->first);
      first_ = next->first + 1;
      begin_ = *state;
      return;
    }
  }
  throw DataError(
      "[strata data find] {}: {}, and no later checkpoint remains that has the position in the data",
      run_.string(), why_);
}

std::shared_ptr<const config::RunPlan> RunSteps::plan_of_start(size_t start) const {
  std::map<std::string, std::string> before;
  for (size_t later = history_.starts.size(); later-- > start + 1;) {
    for (const auto& [key, value] : history_.starts[later])
      if (decides_samples(key) && !names_texts(key)) before[key] = value;
  }
  std::vector<std::string> sets;
  for (const auto& [key, value] : before) sets.push_back(key + "=" + value);
  return plan_of_run(files_, run_, config_of_run(run_, kVerb, sets), {});
}

void RunSteps::check_tokens(const config::RunPlan& plan) const {
  if (checkpoints_.empty()) return;
  const int64_t step = checkpoints_.rbegin()->first;
  const auto state = state_at(step);
  if (!state || state->data.empty() || state->data == config::data_fingerprint(plan.data)) return;
  throw DataError(
      "[strata data find] {}: the training tokens have changed since step {}: texts, token files or the held-out "
      "split differ. Restore them",
      run_.string(), step);
}

int64_t RunSteps::visit(FunctionRef<bool(const StepSamples&)> visit) const {
  std::optional<size_t> start;
  std::shared_ptr<const config::RunPlan> plan;
  std::unique_ptr<config::RunConfig> config;  // the position refers to it
  std::unique_ptr<RunPosition> position;
  for (int64_t step = first_;; ++step) {
    const MadeStep* made = history_.find(step);
    if (const size_t now = history_.start_of(step); start != now) {
      TrainingState state = position ? position->state() : begin_;
      // A run may have been resumed from the checkpoint of another one.
      if (const auto stored = position ? state_at(step - 1) : std::nullopt) state = *stored;
      start = now;
      plan = plan_of_start(now);
      if (now + 1 >= history_.starts.size()) check_tokens(*plan);
      auto own = std::make_unique<config::RunConfig>(plan->config);
      position = std::make_unique<RunPosition>(SampleInputs{*own, plan->model, plan->tokens(), plan->data},
                                               TrainingState{});
      config = std::move(own);
      apply_settings(journal_.settings(0, step - 1), *config, *position);
      position->continue_from(state);
    }
    if (made == nullptr && position->is_at_end()) return step - 1;
    apply_journal(journal_, *config, *position);
    const data::SampleSource& samples = *position->samples();
    const int64_t count =
        std::clamp<int64_t>(samples.total_samples() - position->next_sample(), 0, position->size().sequences);
    const auto require = [&](const char* what, std::optional<int64_t> recorded, int64_t found) {
      if (!recorded || *recorded == found) return;
      throw DataError(
          "[strata data find] {}: metrics.jsonl has {} {} for step {}, and the run's configuration and journal "
          "lead to {}; files of the folder are damaged or belong to different runs",
          run_.string(), what, *recorded, step, found);
    };
    if (made != nullptr) require("first_sample", made->first_sample, position->first_sample());
    if (!visit({step, made != nullptr, samples, position->next_sample(), count, plan})) return step;
    position->advance();
    if (made != nullptr) require("tokens", made->tokens, position->tokens());
  }
}

}  // namespace strata::training
