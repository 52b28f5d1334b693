// How the run ended, and what recovery did.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/clock.h"
#include "diagnosis/findings.h"
#include "observe/run_history.h"

namespace strata::diagnosis {
namespace {

using observe::number_of;
using observe::text_of;

std::string resume_command(const Case& at) {
  return "strata train " + at.run.folder.string();
}

std::string next_start(const Case& at) {
  const CheckpointFacts* from = at.healthy_checkpoint();
  return from == nullptr ? fmt::format("`{}` starts it again", resume_command(at))
                         : fmt::format("`{}` resumes it after step {}", resume_command(at), from->step);
}

std::optional<Found> find_failed(const Case& at) {
  if (at.state != RunState::kFailed) return std::nullopt;
  std::string why = at.run.last_error;
  if (why.empty() && !at.events_since_start("gave_up").empty()) why = "its recovery was exhausted";
  if (why.empty() && !at.events_since_start("diverged").empty()) why = "its loss or gradient was not finite";
  if (why.empty()) why = "no reason is recorded; it was killed, or its machine was lost";
  Found found{.sentence = fmt::format("The run ended after step {} without finishing or saving ({}); {}.",
                                      at.step, why, next_start(at)),
              .evidence = {{"step", at.step}, {"why", why}},
              .settings = {}};
  const CheckpointFacts* from = at.healthy_checkpoint();
  found.evidence["resumes_after"] = from == nullptr ? 0 : from->step;
  found.evidence["lost_steps"] = at.step - (from == nullptr ? 0 : std::min(from->step, at.step));
  return found;
}

std::optional<Found> find_interrupted(const Case& at) {
  if (at.state != RunState::kInterrupted) return std::nullopt;
  const bool by_limit = !at.events_since_start("time_limit").empty();
  Found found{.sentence = fmt::format(
                  "The run was stopped by {} after step {}{}; {}.", by_limit ? "its time limit" : "the user",
                  at.step, at.all_steps ? fmt::format(" of {}", *at.all_steps) : "", next_start(at)),
              .evidence = {{"step", at.step}, {"by", by_limit ? "time limit" : "user"}},
              .settings = {}};
  if (at.all_steps) found.evidence["steps"] = *at.all_steps;
  return found;
}

// Times of the run's last lines; evaluations and saves take place between two steps.
std::vector<double> last_times(const Case& at, size_t most) {
  std::vector<double> times = finite_values(at.run.metrics.column("time"));
  for (const observe::MetricsEvent& event : at.run.metrics.events())
    times.push_back(number_of(event, "time"));
  times = finite_values(times);
  std::sort(times.begin(), times.end());
  if (times.size() > most) times.erase(times.begin(), times.end() - static_cast<std::ptrdiff_t>(most));
  return times;
}

std::optional<Found> find_stalled(const Case& at) {
  // Three times the slowest of a hundred lines is unusual; a large model compiles and loads for minutes.
  constexpr double kFactor = 3, kLeastSeconds = 300;
  if (at.state != RunState::kRunning) return std::nullopt;
  const std::vector<double> times = last_times(at, 500);
  if (times.empty()) return std::nullopt;
  std::vector<double> gaps;
  for (size_t i = 1; i < times.size(); ++i) gaps.push_back(times[i] - times[i - 1]);
  const double usual = gaps.empty() ? 0 : quantile_of(gaps, 0.99);
  const double silent = at.run.now - times.back(), limit = std::max(kLeastSeconds, kFactor * usual);
  if (!(silent > limit)) return std::nullopt;
  return Found{.sentence = fmt::format(
                   "The run holds its folder but has written nothing for {} since step {}, although its "
                   "lines usually follow within {}: a rank hangs or waits; logs/ has the state of each.",
                   human_duration(silent), at.step, human_duration(std::max(1.0, usual))),
               .evidence = {{"step", at.step}, {"silent_s", silent}, {"usual_s", usual}, {"limit_s", limit}},
               .settings = {}};
}

std::optional<Found> find_gave_up(const Case& at) {
  const auto events = at.events_since_start("gave_up");
  if (events.empty()) return std::nullopt;
  const observe::MetricsEvent& event = *events.back();
  const double interventions = number_of(event, "interventions"), lost = number_of(event, "lost_steps");
  Found found{
      .sentence = fmt::format(
          "Recovery stopped trying at step {} ({}): the same problem came back after every attempt, so "
          "its cause is a setting or the data.",
          event.at_step, text_of(event, "why")),
      .evidence = {{"step", event.at_step}, {"why", text_of(event, "why")}},
      .settings = {}};
  if (std::isfinite(interventions)) found.evidence["interventions"] = interventions;
  if (std::isfinite(lost)) found.evidence["lost_steps"] = lost;
  add_scaled_lr(at, 0.5, found.settings);
  add_longer_warmup(at, found.settings);
  return found;
}

std::optional<Found> find_no_progress(const Case& at) {
  constexpr int64_t kSameStep = 3;  // starts, as launchers count before they stop restarting (NVRx)
  std::vector<const observe::MetricsEvent*> starts;
  for (const observe::MetricsEvent& event : at.run.metrics.events()) {
    if (event.event == "start" || event.event == "resume") starts.push_back(&event);
  }
  int64_t same = 0;
  for (auto it = starts.rbegin(); it != starts.rend() && (*it)->at_step == starts.back()->at_step; ++it)
    ++same;
  if (same < kSameStep || at.state == RunState::kFinished) return std::nullopt;
  const int64_t from = starts.back()->at_step;
  Found found{
      .sentence = fmt::format(
          "The last {} starts all began after step {}: the run fails before it saves again.", same, from),
      .evidence = {{"starts", same}, {"from_step", from}, {"step", at.step}},
      .settings = {"checkpoint.interval=\"10min\""}};
  return found;
}

std::optional<Found> find_nonfinite(const Case& at) {
  std::set<int64_t> steps;
  int64_t skipped = 0;
  const std::vector<int64_t>& all = at.run.metrics.steps();
  for (size_t i = 0; i < all.size(); ++i) {
    if (at.run.marks[i].is_finite) continue;
    steps.insert(all[i]);
    skipped += at.run.marks[i].skipped ? 1 : 0;
  }
  for (const UndoneStep& one : at.run.undone) {
    if (!one.is_finite) steps.insert(one.step);
  }
  for (const observe::MetricsEvent* event : at.events("diverged")) steps.insert(event->at_step);
  for (const observe::MetricsEvent* event : at.events("intervention")) {
    if (text_of(*event, "rule") == "nonfinite") steps.insert(event->at_step);
  }
  if (steps.empty()) return std::nullopt;
  const int64_t first = *steps.begin();
  Found found{.sentence = fmt::format("The loss or the gradient was not finite in {}, first in step {}.",
                                      counted_in(std::ssize(steps), "step"), first),
              .evidence = {{"first_step", first},
                           {"last_step", *steps.rbegin()},
                           {"steps", steps.size()},
                           {"skipped", skipped}},
              .settings = {}};
  add_scaled_lr(at, 0.5, found.settings);
  if (first <= 2 * at.warmup) add_longer_warmup(at, found.settings);
  add_recovery(at, found.settings);
  // One bad batch can be left out; many point to the settings.
  const Series samples = at.column("first_sample").between(first - 1, first);
  if (steps.size() == 1 && samples.size() == 1 && at.run.config) {
    const auto begin = whole_number(samples.values().front());
    const int64_t end = begin + at.run.config->training.global_batch_size - 1;
    found.sentence += fmt::format(" It read the samples {} to {}.", begin, end);
    found.evidence["samples"] = {begin, end};
    found.settings.push_back(fmt::format("data.skip=[[{}, {}]]", begin, end));
  }
  return found;
}

std::optional<Found> find_skipped(const Case& at) {
  constexpr size_t kWindow = 1000;  // steps, as recovery.max_interventions
  constexpr double kShare = 0.01;   // more than a batch or two that happened to be bad
  constexpr int64_t kLeast = 3;
  const std::vector<int64_t>& steps = at.run.metrics.steps();
  const size_t begin = steps.size() - std::min(kWindow, steps.size());
  std::vector<int64_t> skipped;
  for (size_t i = begin; i < steps.size(); ++i) {
    if (at.run.marks[i].skipped && at.run.marks[i].has_targets) skipped.push_back(steps[i]);
  }
  const double share =
      static_cast<double>(skipped.size()) / static_cast<double>(std::max<size_t>(1, steps.size() - begin));
  if (std::ssize(skipped) < kLeast || share < kShare) return std::nullopt;
  Found found{.sentence = fmt::format(
                  "{} of the last {} updates were skipped ({}), since step {}: these batches taught the "
                  "model nothing.",
                  skipped.size(), steps.size() - begin, percent(share), skipped.front()),
              .evidence = {{"skipped", skipped.size()},
                           {"of", steps.size() - begin},
                           {"share", share},
                           {"first_step", skipped.front()},
                           {"last_step", skipped.back()}},
              .settings = {}};
  add_scaled_lr(at, 0.5, found.settings);
  return found;
}

std::optional<Found> find_rollbacks(const Case& at) {
  int64_t count = 0, lost = 0, first = -1;
  std::string rules;
  for (const observe::MetricsEvent* event : at.events("intervention")) {
    const double to = number_of(*event, "to_step");
    if (!text_of(*event, "action").starts_with("rollback") && !std::isfinite(to)) continue;
    if (count++ == 0) first = event->at_step;
    if (std::isfinite(to)) lost += std::max<int64_t>(0, event->at_step - whole_number(to));
    const std::string rule = text_of(*event, "rule");
    if (!rule.empty() && rules.find(rule) == std::string::npos) rules += (rules.empty() ? "" : ", ") + rule;
  }
  if (count == 0) return std::nullopt;
  Found found{.sentence = fmt::format("Recovery went back {}, first at step {} ({}), and undid {}.",
                                      counted_in(count, "time"), first,
                                      rules.empty() ? "rule unknown" : rules, counted_in(lost, "step")),
              .evidence = {{"rollbacks", count},
                           {"first_step", first},
                           {"lost_steps", lost},
                           {"undone_s", at.time.undone},
                           {"rules", rules}},
              .settings = {}};
  add_scaled_lr(at, 0.7, found.settings);
  add_longer_warmup(at, found.settings);
  return found;
}

std::optional<Found> find_corruption(const Case& at) {
  std::vector<const observe::MetricsEvent*> events = at.events("corruption");
  for (const observe::MetricsEvent* event : at.events("intervention")) {
    if (text_of(*event, "rule") == "corruption") events.push_back(event);
  }
  if (events.empty()) return std::nullopt;
  const observe::MetricsEvent& event = *events.front();
  const double rank = number_of(event, "rank");
  const std::string tensor = text_of(event, "tensor"), where = text_of(event, "where");
  Found found{.sentence = fmt::format(
                  "Data was corrupted {}, first at step {}{}{}{}: a machine computes or stores wrong "
                  "values; test its memory and replace it.",
                  counted_in(std::ssize(events), "time"), event.at_step, where.empty() ? "" : " in " + where,
                  tensor.empty() ? "" : ", tensor " + tensor,
                  std::isfinite(rank) ? fmt::format(", on rank {:.0f}", rank) : ""),
              .evidence = {{"events", events.size()}, {"first_step", event.at_step}},
              .settings = {}};
  if (std::isfinite(rank)) found.evidence["rank"] = rank;
  if (!tensor.empty()) found.evidence["tensor"] = tensor;
  if (const std::string by = text_of(event, "found_by"); !by.empty()) found.evidence["found_by"] = by;
  return found;
}

}  // namespace

std::span<const FindingKind> state_findings() {
  static constexpr FindingKind kKinds[] = {
      {"failed", "the run ended without finishing or saving, and no process uses its folder", find_failed},
      {"stalled", "a process uses the folder, but nothing was written for much longer than usual",
       find_stalled},
      {"no_progress", "three starts in a row began after the same step", find_no_progress},
      {"gave_up", "recovery used up its limits", find_gave_up},
      {"nonfinite_values", "the loss or the gradient norm was NaN or infinite", find_nonfinite},
      {"corruption", "copies of the same values differed", find_corruption},
      {"rollbacks", "recovery went back to an earlier state", find_rollbacks},
      {"skipped_updates", "at least 1 % of the last 1,000 updates were skipped", find_skipped},
      {"interrupted", "the run was stopped before its last step, and saved", find_interrupted},
  };
  return kKinds;
}

}  // namespace strata::diagnosis
