// Reactions of the loop to a rule of recovery that fires: the actions, the way back, the end.
#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "comm/exchange.h"
#include "train/injector.h"
#include "train/training_loop.h"

namespace strata::training {
namespace {

observe::MetricFields fields_of(const Intervention& one) {
  observe::MetricFields fields{
      {"rule", one.rule}, {"action", one.action}, {"measured", one.measured}, {"limit", one.limit}};
  if (one.to_step) fields.push_back({"to_step", *one.to_step});
  if (one.first_skipped)
    fields.push_back({"skipped_samples", fmt::format("{}-{}", *one.first_skipped, *one.last_skipped)});
  if (one.factor) fields.push_back({"factor", *one.factor});
  if (one.for_steps) fields.push_back({"for_steps", *one.for_steps});
  return fields;
}

std::string text_of(double value) {
  if (std::isnan(value)) return "NaN";
  return std::isinf(value) ? "infinite" : fmt::format("{:.4g}", value);
}

// "loss_spike (7.61, limit 4.37)"
std::string finding_text(const std::string& rule, double measured, double limit) {
  if (rule == "corruption") return rule;
  if (!std::isfinite(limit)) return fmt::format("{} ({})", rule, text_of(measured));
  return fmt::format("{} ({}, limit {})", rule, text_of(measured), text_of(limit));
}

std::string sentence_of(const Intervention& one) {
  std::string text =
      fmt::format("recovery: step {}: {}", one.at_step, finding_text(one.rule, one.measured, one.limit));
  text += ": " + one.action;
  if (one.to_step) text += fmt::format(" to step {}", *one.to_step);
  if (one.first_skipped)
    text += fmt::format(", without samples {} to {}", *one.first_skipped, *one.last_skipped);
  if (one.factor) text += fmt::format(", factor {}", *one.factor);
  if (one.for_steps) text += fmt::format(" for {} steps", *one.for_steps);
  return text;
}

}  // namespace

void TrainingLoop::write_journal() {
  if (inputs_.is_first()) options_.store.write_journal(journal_);
}

void TrainingLoop::record_intervention(const Intervention& one, Reporter& reporter) {
  if (!journal_.add(one)) return;  // made before the run was resumed
  reporter.event("intervention", one.at_step, fields_of(one));
  reporter.note(sentence_of(one));
}

bool TrainingLoop::intervene(const Judgement& judged, Saves& saves, Reporter& reporter) {
  for (const Alert& alert : judged.alerts) {
    reporter.event("alert", record_.step,
                   {{"rule", alert.rule}, {"measured", alert.measured}, {"limit", alert.limit}});
    reporter.note(fmt::format("alert: step {}: {}", record_.step,
                              finding_text(alert.rule, alert.measured, alert.limit)));
  }
  if (!judged.stop.empty()) {
    for (const Intervention& one : judged.interventions) record_intervention(one, reporter);
    const std::string advice =
        record_.decision.overflowed == 0
            ? ""
            : fmt::format(
                  "Compute in bf16 or fp32, which have a larger range (precision.compute), or lower "
                  "optimizer.lr; strata replay {} --step {} repeats the step",
                  options_.store.folder().string(), record_.step);
    give_up(judged.stop, advice, saves, reporter);
  }
  if (judged.interventions.empty() && !judged.rollback) return false;
  // A resumed run repeats steps whose interventions count already.
  const auto actions = std::count_if(judged.interventions.begin(), judged.interventions.end(),
                                     [&](const Intervention& one) { return !journal_.has(one); }) +
                       (judged.rollback ? 1 : 0);
  if (std::string why = recovery_.limit_reached(journal_, record_.step, actions, 0); !why.empty()) {
    const Intervention& last = judged.rollback ? judged.rollback->why : judged.interventions.back();
    give_up(fmt::format("{}; found again: {}", why, finding_text(last.rule, last.measured, last.limit)), "",
            saves, reporter);
  }
  if (judged.rollback) {
    go_back(judged, saves, reporter);
    return true;
  }
  for (const Intervention& one : judged.interventions) record_intervention(one, reporter);
  for (const Effect& effect : judged.effects) journal_.add(effect);
  write_journal();
  return false;
}

std::string TrainingLoop::overflow_text(StepRunner& steps) const {
  const std::optional<ComputedValue> mine = steps.first_nonfinite(position_);
  // Of all ranks the value that comes first in the step.
  constexpr double kNowhere = std::numeric_limits<double>::infinity();
  const std::vector<double> places =
      comm::gather_values(inputs_.ranks.all(), mine ? static_cast<double>(mine->place) : kNowhere);
  const auto texts = comm::gather_texts(inputs_.ranks.all(),
                                        mine ? fmt::format("{} ({})", mine->tensor, mine->instruction) : "");
  const auto first = std::min_element(places.begin(), places.end());
  if (*first == kNowhere) return {};
  return fmt::format("; the first value that is not finite is {}",
                     texts[static_cast<size_t>(first - places.begin())]);
}

std::optional<TrainingState> TrainingLoop::restore(int64_t at_most, Reporter& reporter) {
  while (const TrainingState* state = snapshots_->find(at_most)) {
    const auto damaged =
        comm::gather_texts(inputs_.ranks.all(), snapshots_->damaged_value(state->step).value_or(""));
    const auto rank =
        std::find_if(damaged.begin(), damaged.end(), [](const auto& one) { return !one.empty(); });
    if (rank == damaged.end()) {
      snapshots_->restore(state->step);
      return *state;
    }
    report_corruption({.where = "snapshot",
                       .found_by = "digest",
                       .tensor = *rank,
                       .rank = static_cast<int>(rank - damaged.begin())},
                      record_.step, reporter);
    snapshots_->drop(state->step);
  }
  if (snapshots_->has_any()) return std::nullopt;
  return options_.store.load_at_most(at_most, inputs_.model, *executor_);
}

void TrainingLoop::go_back(const Judgement& judged, Saves& saves, Reporter& reporter) {
  const int64_t from = position_.step();  // counts the step that failed
  const int64_t next_sample = *position_.state().next_sample;
  saves.end();
  const Intervention* last = journal_.last_rollback();
  std::optional<TrainingState> target;
  if (judged.rollback->older && last != nullptr) target = restore(*last->to_step - 1, reporter);
  if (!target) target = restore(from - 1, reporter);
  if (!target) {
    give_up("there is no snapshot and no healthy checkpoint to go back to",
            "set recovery.snapshot or save checkpoints more often (checkpoint.interval)", saves, reporter);
  }
  if (const std::string why = recovery_.limit_reached(journal_, record_.step, 0, from - target->step);
      !why.empty())
    give_up(why, "", saves, reporter);
  for (const Intervention& one : judged.interventions) record_intervention(one, reporter);
  position_.continue_from(*target);
  take_noise(*target);
  Intervention why = judged.rollback->why;
  why.to_step = target->step;
  journal_.undo_after(target->step, from);
  if (judged.rollback->skips_data) {
    why.first_skipped = position_.first_sample();
    why.last_skipped = next_sample - 1;
    journal_.add({.kind = Effect::Kind::kJump, .step = target->step, .next_sample = next_sample});
  }
  for (Effect effect : judged.effects) {
    effect.step = target->step;
    journal_.add(effect);
  }
  // Checkpoints of undone steps go first: without the new journal the run would repeat these steps and come
  // here again.
  snapshots_->drop_after(target->step);
  copies_->drop_after(target->step);
  if (injector_ != nullptr) injector_->undo_after(target->step);
  if (inputs_.is_first()) options_.store.set_aside_after(target->step);
  record_intervention(why, reporter);
  write_journal();
  reporter.roll_back(target->step);
  inputs_.ranks.world().barrier();
}

void TrainingLoop::give_up(const std::string& why, const std::string& advice, Saves& saves,
                           Reporter& reporter) {
  saves.end();
  copies_->remove();
  std::vector<std::string> tried;
  for (const Intervention& one : journal_.interventions())
    if (one.at_step > record_.step - Journal::kCountedSteps) tried.push_back(sentence_of(one));
  const bool is_finite = record_.decision.nonfinite == 0;
  if (!is_finite)
    reporter.event("diverged", record_.step,
                   {{"loss", record_.loss.value_or(0)}, {"grad_norm", record_.grad_norm}});
  reporter.event("gave_up", record_.step,
                 {{"why", why},
                  {"interventions", std::ssize(journal_.interventions())},
                  {"lost_steps", journal_.lost_steps()}});
  std::string remains = options_.store.holds_checkpoints() ? "the last checkpoint on disk is good"
                                                           : "there is no checkpoint yet";
  if (record_.decision.skip != 0)
    remains = fmt::format("the weights of step {} are untouched in memory and {}", record_.step - 1, remains);
  reporter.finish(observe::RunState::kFailed,
                  fmt::format("step {}: {}{}{}", record_.step, why,
                              tried.empty() ? "" : "; tried: ", fmt::join(tried, "; ")));
  throw DivergedError(
      "[step {}] {}; {}. {}{}", record_.step, why, remains,
      advice.empty() ? "Lower optimizer.lr, raise schedule.warmup_steps, or leave out the batch: "
                       "data.skip = "
                     : advice,
      advice.empty() ? fmt::format("[[{}, {}]]", record_.first_sample, *position_.state().next_sample - 1)
                     : "");
}

}  // namespace strata::training
