// Time that the run lost.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/clock.h"
#include "diagnosis/findings.h"
#include "observe/run_history.h"

namespace strata::diagnosis {
namespace {

// Steps that are enough for a share of the time, without the first ones of a start.
constexpr size_t kLeastTimedSteps = 50, kMostTimedSteps = 1000;

std::optional<Found> find_data_wait(const Case& at) {
  constexpr double kShare = 0.05;
  const Series waits = at.column("data_wait_ms").last(kMostTimedSteps),
               steps = at.column("step_ms").last(kMostTimedSteps);
  if (steps.size() < kLeastTimedSteps || !(steps.sum() > 0)) return std::nullopt;
  const double share = waits.sum() / steps.sum();
  if (share < kShare) return std::nullopt;
  return Found{
      .sentence = fmt::format(
          "Steps wait for data {} of their time, {} ms each since step {}: put the token files on a faster "
          "disk or into memory, or leave a core to the loader.",
          percent(share), shown(waits.sum() / static_cast<double>(waits.size())), waits.steps().front()),
      .evidence = {{"share", share},
                   {"mean_ms", waits.sum() / static_cast<double>(waits.size())},
                   {"since_step", waits.steps().front()}},
      .settings = {}};
}

// The slowest of the ranks' bins in the newest samples.
std::optional<Found> find_slow_rank(const Case& at) {
  constexpr size_t kSamples = 20, kLeastSamples = 5;
  constexpr double kSlow = 1.1;      // of the median rank (reliability: ByteDance's stragglers)
  constexpr double kSameRank = 0.8;  // of the samples: otherwise noise of the machine
  const auto& samples = at.run.ranks;
  const size_t begin = samples.size() - std::min(kSamples, samples.size());
  std::map<size_t, std::vector<double>> ratios;  // by bin
  size_t count = 0;
  int64_t ranks = 0;
  for (size_t i = begin; i < samples.size(); ++i) {
    if (samples[i].bins.size() < 2) continue;
    std::vector<double> times;
    for (const observe::RankFigures& bin : samples[i].bins) times.push_back(bin.step_ms);
    // Without the slowest, so that of two ranks the other is the measure.
    const auto slowest = std::max_element(times.begin(), times.end());
    const double most = *slowest;
    const auto bin = static_cast<size_t>(slowest - times.begin());
    times.erase(slowest);
    const double usual = median_of(times);
    ++count;
    ranks = samples[i].ranks;
    if (usual > 0) ratios[bin].push_back(most / usual);
  }
  if (count < kLeastSamples || ratios.empty()) return std::nullopt;
  const auto most = std::max_element(ratios.begin(), ratios.end(), [](const auto& a, const auto& b) {
    return a.second.size() < b.second.size();
  });
  const double ratio = median_of(most->second);
  if (ratio < kSlow || static_cast<double>(most->second.size()) < kSameRank * static_cast<double>(count))
    return std::nullopt;
  const auto bins = static_cast<int64_t>(samples.back().bins.size()), bin = static_cast<int64_t>(most->first);
  const int64_t first = bin * ranks / bins, last = (bin + 1) * ranks / bins - 1;
  Found found{
      .sentence = fmt::format(
          "{} {} {:.2f} times as slow as the others, so all ranks lose {} of their time; check the host: its "
          "clock rate, other processes, cooling.",
          first == last ? fmt::format("Rank {}", first)
                        : fmt::format("One of the ranks {} to {}", first, last),
          "is", ratio, percent(1 - 1 / ratio)),
      .evidence = {{"rank", first},
                   {"last_rank", last},
                   {"ratio", ratio},
                   {"lost_share", 1 - 1 / ratio},
                   {"samples", count}},
      .settings = {}};
  // The stages of a pipeline may have unequal work.
  if (at.run.config && at.run.config->parallel.pipeline > 1 &&
      !at.run.config->parallel.stage_layers.is_word())
    found.settings.emplace_back("parallel.stage_layers=\"auto\"");
  return found;
}

// Seconds per token of the steps with about as many tokens as the last one: ramps change the batch.
Series seconds_per_token(const Case& at) {
  const std::vector<int64_t>& steps = at.run.metrics.steps();
  const std::span<const double> tokens = at.run.metrics.column("tokens");
  const std::span<const double> speed = at.run.metrics.column("tokens_per_s");
  if (speed.empty() || tokens.size() < 2) return {};
  const double last = tokens.back() - tokens[tokens.size() - 2];
  std::vector<double> seconds(speed.size(), NAN);
  for (size_t i = 1; i < speed.size(); ++i) {
    const double count = tokens[i] - tokens[i - 1];
    if (count > 0.8 * last && count < 1.25 * last && speed[i] > 0) seconds[i] = 1 / speed[i];
  }
  return {steps, seconds};
}

std::optional<Found> find_speed_drop(const Case& at) {
  constexpr double kDrop = 0.85;  // of a good level; shared machines vary by some percent
  constexpr size_t kLeastSteps = 300;
  const Series seconds = seconds_per_token(at);
  if (seconds.size() < kLeastSteps) return std::nullopt;
  const std::vector<WindowLevel> levels = levels_of(seconds, window_of(seconds.size()));
  std::vector<double> medians;
  for (const WindowLevel& level : levels) medians.push_back(level.median);
  // Not the best window, which is partly luck.
  const double good = quantile_of(medians, 0.25), limit = good / kDrop;
  if (levels.size() < 2 || levels[levels.size() - 2].median < limit) return std::nullopt;
  const std::optional<int64_t> since = above_since(seconds, levels, limit);
  if (!since) return std::nullopt;
  const double now = levels.back().median, lost = 1 - good / now;
  return Found{
      .sentence = fmt::format("The run is slower since step {}: {} tokens/s instead of {} ({} less): another "
                              "process, heat, or a slower disk or network.",
                              *since, human_count(1 / now), human_count(1 / good), percent(lost)),
      .evidence = {{"since_step", *since},
                   {"tokens_per_s", 1 / now},
                   {"before", 1 / good},
                   {"lost_share", lost}},
      .settings = {}};
}

std::optional<Found> find_memory_growth(const Case& at) {
  constexpr double kGrowth = 1.25;  // since the first quarter, when all buffers are in use
  constexpr double kSmall = 64e6;   // bytes: counters and logs of long runs
  constexpr size_t kLeastSteps = 400, kRising = 4;
  // Of the present start: another one may have another layout.
  int64_t from = 0;
  for (const char* name : {"start", "resume"}) {
    for (const observe::MetricsEvent* event : at.events(name)) from = std::max(from, event->at_step);
  }
  const Series memory = at.column("memory_bytes").between(from, at.step);
  if (memory.size() < kLeastSteps) return std::nullopt;
  const std::vector<WindowLevel> levels = levels_of(memory, window_of(memory.size()));
  const WindowLevel early = levels[levels.size() / 4];
  const double before = early.median, now = levels.back().median;
  if (levels.size() < 2 * kRising || now < kGrowth * before || now - before < kSmall) return std::nullopt;
  for (size_t i = levels.size() - kRising; i < levels.size(); ++i) {
    if (levels[i].median <= levels[i - 1].median) return std::nullopt;
  }
  const double per_step = (now - before) / static_cast<double>(levels.back().last_step - early.last_step);
  return Found{
      .sentence = fmt::format(
          "Memory grows steadily, from {} to {} ({} per 1,000 steps): the program or a library leaks; a restart "
          "frees it.",
          human_bytes(before), human_bytes(now), human_bytes(1000 * per_step)),
      .evidence = {{"before", before},
                   {"now", now},
                   {"bytes_per_step", per_step},
                   {"since_step", levels[levels.size() / 4].first_step}},
      .settings = {}};
}

std::optional<Found> find_saves_cost(const Case& at) {
  constexpr double kShare = 0.03;  // "auto" aims at 1 %
  constexpr size_t kLeastSaves = 3;
  std::vector<double> held;
  for (const observe::MetricsEvent* event : at.events("save"))
    held.push_back(observe::number_of(*event, "held_up"));
  held = finite_values(held);
  const double running = at.time.elapsed - at.time.paused - at.time.restarting;
  double sum = 0;
  for (const double one : held) sum += one;
  if (held.size() < kLeastSaves || !(running > 0) || sum < kShare * running) return std::nullopt;
  return Found{
      .sentence = fmt::format(
          "Checkpoints take {} of the time: each of {} holds up training for {:.2g} s; save less often.",
          percent(sum / running), held.size(), median_of(held)),
      .evidence = {{"share", sum / running}, {"saves", held.size()}, {"held_up_s", median_of(held)}},
      .settings = {"checkpoint.interval=\"auto\""}};
}

std::optional<Found> find_few_checkpoints(const Case& at) {
  constexpr double kMost = 3600;  // s; "auto" saves at least every 30 minutes
  if (at.state == RunState::kFinished || at.state == RunState::kInterrupted) return std::nullopt;
  // Since the last save or start, whichever came later.
  double since = NAN;
  for (const char* name : {"start", "resume", "save"}) {
    for (const observe::MetricsEvent* event : at.events(name))
      since = std::fmax(since, observe::number_of(*event, "time"));
  }
  const Series times = at.column("time");
  const double unsaved = times.empty() ? 0 : times.values().back() - since;
  const auto saves = at.events("save");
  if (!(unsaved > kMost)) return std::nullopt;
  return Found{
      .sentence = fmt::format(
          "{} of training are not saved ({}): a failure now would lose them.", human_duration(unsaved),
          saves.empty() ? std::string("there is no checkpoint")
                        : fmt::format("the last checkpoint is of step {}", saves.back()->at_step)),
      .evidence = {{"unsaved_s", unsaved},
                   {"step", at.step},
                   {"last_save", saves.empty() ? 0 : saves.back()->at_step}},
      .settings = {"checkpoint.interval=\"10min\""}};
}

std::optional<Found> find_restarts(const Case& at) {
  constexpr int64_t kLeast = 2;
  constexpr double kShare = 0.1;  // of the time
  const double lost = at.time.restarting + at.time.undone, running = at.time.elapsed - at.time.paused;
  if (at.time.failures < kLeast || !(running > 0) || lost < kShare * running) return std::nullopt;
  Found found{.sentence = fmt::format(
                  "{} failures cost {} of the time: {} for restarts and {} for steps that were repeated.",
                  at.time.failures, percent(lost / running), human_duration(at.time.restarting),
                  human_duration(at.time.undone)),
              .evidence = {{"failures", at.time.failures},
                           {"share", lost / running},
                           {"restarting_s", at.time.restarting},
                           {"undone_s", at.time.undone}},
              .settings = {}};
  if (at.time.undone > at.time.restarting) found.settings.emplace_back("checkpoint.interval=\"auto\"");
  // Repeated failures of one rank point to its host.
  std::map<int64_t, int64_t> ranks;
  for (const observe::LedgerAttempt& attempt : at.run.attempts) {
    if (!attempt.ended_cleanly() && attempt.first_rank) ++ranks[*attempt.first_rank];
  }
  for (const auto& [rank, count] : ranks) {
    if (count < kLeast || 2 * count <= at.time.failures) continue;
    found.sentence += fmt::format(" Rank {} failed first in {} of them.", rank, count);
    found.evidence["rank"] = rank;
  }
  return found;
}

}  // namespace

std::span<const FindingKind> time_findings() {
  static constexpr FindingKind kKinds[] = {
      {"restarts", "failures cost at least 10 % of the time", find_restarts},
      {"slow_rank", "one rank is at least 1.1 times as slow as the others, again and again", find_slow_rank},
      {"data_wait", "steps wait for data at least 5 % of their time", find_data_wait},
      {"speed_drop", "at least 15 % fewer tokens per second than before", find_speed_drop},
      {"saves_cost", "checkpoints hold up training for at least 3 % of the time", find_saves_cost},
      {"few_checkpoints", "more than an hour of training is not saved", find_few_checkpoints},
      {"memory_growth", "the process's memory grows steadily, by a quarter so far", find_memory_growth},
  };
  return kKinds;
}

}  // namespace strata::diagnosis
