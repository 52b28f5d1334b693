// The loss and the gradient norm over the run.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "diagnosis/findings.h"

namespace strata::diagnosis {
namespace {

// Whether the mixture of sources changes at about this step, which changes the level of the loss.
bool follows_phase(const Case& at, int64_t step, int64_t within) {
  if (!at.run.config) return false;
  const auto& phases = at.run.config->data.phase;
  return std::any_of(phases.begin(), phases.end(), [&](const config::DataPhase& phase) {
    return phase.from_step > 1 && step >= phase.from_step - within && step <= phase.from_step + within;
  });
}

const Spike& largest_of(const std::vector<Spike>& spikes) {
  return *std::max_element(spikes.begin(), spikes.end(), [](const Spike& a, const Spike& b) {
    return a.value / a.usual < b.value / b.usual;
  });
}

// `least`: spikes that are reported whatever their height; `high`: the height of one that is, over the usual.
std::optional<Found> report_spikes(const std::vector<Spike>& spikes, const char* what, size_t least,
                                   double high) {
  if (spikes.empty()) return std::nullopt;
  const Spike& largest = largest_of(spikes);
  if (spikes.size() < least && largest.value < high * largest.usual) return std::nullopt;
  return Found{
      .sentence = fmt::format("The {} spiked {} since step {}, to {} instead of {} in step {}.", what,
                              counted_in(std::ssize(spikes), "time"), spikes.front().first_step,
                              shown(largest.value), shown(largest.usual), largest.first_step),
      .evidence = {{"spikes", spikes.size()},
                   {"first_step", spikes.front().first_step},
                   {"last_step", spikes.back().last_step},
                   {"largest", largest.value},
                   {"usual", largest.usual},
                   {"largest_at", largest.first_step}},
      .settings = {}};
}

std::optional<Found> find_loss_spikes(const Case& at) {
  std::optional<Found> found = report_spikes(at.loss_spikes, "loss", 2, 1.5);
  if (!found) return found;
  add_scaled_lr(at, 0.7, found->settings);
  add_clipping(at, 1.0, found->settings);
  add_recovery(at, found->settings);
  return found;
}

std::optional<Found> find_gradient_spikes(const Case& at) {
  // Gradient norms have longer tails than losses, and clipping absorbs a few outliers.
  std::optional<Found> found = report_spikes(at.gradient_spikes, "gradient norm", 3, 10);
  if (!found) return found;
  add_clipping(at, 2 * at.grad_norm.median(), found->settings);
  add_scaled_lr(at, 0.7, found->settings);
  return found;
}

// How far the loss is above its best level.
struct Rise {
  double first = 0, best = 0, last = 0;  // levels
  int64_t best_step = 0;
  double noise = 0;  // of a level
};

std::optional<Rise> rise_of(const Case& at) {
  constexpr size_t kLeastLevels = 4;
  const std::vector<WindowLevel>& levels = at.loss_levels;
  if (levels.size() < kLeastLevels) return std::nullopt;
  const auto best =
      std::min_element(levels.begin(), levels.end(),
                       [](const WindowLevel& a, const WindowLevel& b) { return a.median < b.median; });
  // A median of n values has 1.25 / √n of their noise.
  const double noise = 1.25 * noise_of(at.loss.values()) / std::sqrt(static_cast<double>(at.window));
  return Rise{.first = at.loss.values().front(),
              .best = best->median,
              .last = levels.back().median,
              .best_step = best->last_step,
              .noise = noise};
}

constexpr double kNoises = 5;  // of a level, beyond which a difference is real

bool has_diverged(const Rise& rise) {
  // Half of the learned progress is lost, and the rise is more than a fifth.
  return rise.last > rise.best + 0.5 * std::max(0.0, rise.first - rise.best) && rise.last > 1.2 * rise.best &&
         rise.last > rise.best + kNoises * rise.noise;
}

Found report_rise(const Case& at, const Rise& rise, double limit, const std::string& text) {
  const int64_t since = above_since(at.loss, at.loss_levels, limit).value_or(at.step);
  return {.sentence = fmt::format("{}: {:.4g} since step {}, and {:.4g} at its best around step {}.", text,
                                  rise.last, since, rise.best, rise.best_step),
          .evidence = {{"since_step", since},
                       {"loss", rise.last},
                       {"best", rise.best},
                       {"best_step", rise.best_step},
                       {"first", rise.first},
                       {"noise", rise.noise}},
          .settings = {}};
}

std::optional<Found> find_divergence(const Case& at) {
  const std::optional<Rise> rise = rise_of(at);
  if (!rise || !has_diverged(*rise)) return std::nullopt;
  Found found = report_rise(at, *rise, rise->best + 0.5 * (rise->last - rise->best),
                            "Training has diverged, the loss is far above its best level");
  add_scaled_lr(at, 0.5, found.settings);
  add_longer_warmup(at, found.settings);
  add_clipping(at, 1.0, found.settings);
  add_recovery(at, found.settings);
  return found;
}

std::optional<Found> find_loss_high(const Case& at) {
  constexpr double kRise = 1.05;  // batches of another kind of text move a level by a few percent
  const std::optional<Rise> rise = rise_of(at);
  if (!rise || has_diverged(*rise)) return std::nullopt;
  const double limit = std::max(kRise * rise->best, rise->best + kNoises * rise->noise);
  if (!(rise->last > limit)) return std::nullopt;
  Found found = report_rise(at, *rise, limit, "The loss stays above an earlier level");
  if (follows_phase(at, above_since(at.loss, at.loss_levels, limit).value_or(at.step),
                    std::ssize(at.loss.values()) / 5))
    return std::nullopt;
  add_scaled_lr(at, 0.5, found.settings);
  add_clipping(at, 1.0, found.settings);
  add_recovery(at, found.settings);
  return found;
}

std::optional<Found> find_plateau(const Case& at) {
  constexpr size_t kLeastSteps = 400;
  constexpr double kProgress = 1e-3;  // of the loss, over a quarter of the run: below is flat
  constexpr double kPossible = 5e-3;  // progress that the noise may hide
  constexpr double kLeastRate =
      0.2;  // of the peak: with a lower learning rate a flat loss is the end of the schedule
  constexpr double kLearned = 0.05;  // nats: a text that is known by heart has nothing left to learn
  if (at.loss.size() < kLeastSteps) return std::nullopt;
  const size_t quarter = at.loss.size() / 4;
  const Series last = at.loss.last(quarter);
  const Series half = at.loss.last(2 * quarter);
  const Series third{std::span(half.steps()).first(quarter), std::span(half.values()).first(quarter)};
  const double before = third.median(), now = last.median();
  const double noise = 1.25 * noise_of(half.values()) * std::sqrt(2.0 / static_cast<double>(quarter));
  const double rate = at.lr.last(quarter).median();
  if (now < kLearned || std::isnan(rate) || rate < kLeastRate * at.lr.max()) return std::nullopt;
  const double progress = before - now;
  if (progress > kProgress * now || progress + 2 * noise > kPossible * now || progress < -kPossible * now)
    return std::nullopt;
  Found found{.sentence = fmt::format(
                  "The loss has stopped falling: {:.4g} in the last {} steps and {:.4g} in those before, "
                  "with a learning rate of {:.2g}.",
                  now, quarter, before, rate),
              .evidence = {{"since_step", half.steps().front()},
                           {"loss", now},
                           {"before", before},
                           {"noise", noise},
                           {"lr", rate}},
              .settings = {}};
  // A rate that is far too high or low can both stall a run; with spikes it is too high.
  add_scaled_lr(at, at.gradient_spikes.empty() && at.loss_spikes.empty() ? 2 : 0.5, found.settings);
  if (at.run.config)
    found.settings.push_back(
        fmt::format("training.global_batch_size={}", 2 * at.run.config->training.global_batch_size));
  return found;
}

// The held-out loss that the run measures: that of data.valid, or the first one.
std::string held_out_name(const Case& at) {
  std::string first;
  for (const std::string& name : at.run.metrics.names()) {
    if (name == "eval/valid/loss") return name;
    if (first.empty() && name.starts_with("eval/") && name.ends_with("/loss")) first = name;
  }
  return first;
}

std::optional<Found> find_overfitting(const Case& at) {
  constexpr size_t kLeastEvaluations = 5, kAfterBest = 2;
  constexpr double kRise = 1.01;  // beyond the noise of an evaluation
  const std::string name = held_out_name(at);
  const Series held_out = at.column(name);
  if (held_out.size() < kLeastEvaluations) return std::nullopt;
  const std::vector<double>& values = held_out.values();
  const auto best = std::min_element(values.begin(), values.end());
  const auto after = values.end() - best - 1;
  // The lower of the last two, so that one bad evaluation is not a trend.
  const double now = std::min(values.back(), values[values.size() - 2]);
  if (after < static_cast<std::ptrdiff_t>(kAfterBest) || !(now > kRise * *best)) return std::nullopt;
  const int64_t best_step = held_out.steps()[static_cast<size_t>(best - values.begin())];
  // Only if the training loss still falls: otherwise the run diverges.
  const size_t some = std::max<size_t>(5, at.window / 2);
  const double training_then = at.loss.between(0, best_step).last(some).median(),
               training_now = at.loss.last(some).median();
  if (!(training_now < training_then)) return std::nullopt;
  Found found{.sentence = fmt::format(
                  "The model overfits: {} was lowest in step {} ({:.4g}) and is {:.4g} now, while the "
                  "training loss fell from {:.4g} to {:.4g}; use RUN@best, or train on more text.",
                  name, best_step, *best, values.back(), training_then, training_now),
              .evidence = {{"metric", name},
                           {"best_step", best_step},
                           {"best", *best},
                           {"last", values.back()},
                           {"training_then", training_then},
                           {"training_now", training_now}},
              .settings = {fmt::format("training.steps={}", best_step)}};
  if (at.run.config) {
    const double decay = at.run.config->optimizer.weight_decay;
    found.settings.push_back("optimizer.weight_decay=" + short_number(decay > 0 ? 2 * decay : 0.1));
    if (at.run.config->checkpoint.keep_best == 0) found.settings.emplace_back("checkpoint.keep_best=1");
  }
  return found;
}

}  // namespace

std::span<const FindingKind> loss_findings() {
  static constexpr FindingKind kKinds[] = {
      {"divergence", "the loss has lost at least half of its progress", find_divergence},
      {"loss_high", "the loss stays at least 5 % above its best level", find_loss_high},
      {"loss_spikes", "the loss leaves its level by 8 robust deviations, twice or to 1.5 times",
       find_loss_spikes},
      {"gradient_spikes", "the gradient norm does, three times or to 10 times", find_gradient_spikes},
      {"plateau", "the loss fell by less than 0.1 % in a quarter of the run", find_plateau},
      {"overfitting", "the held-out loss rises while the training loss falls", find_overfitting},
  };
  return kKinds;
}

}  // namespace strata::diagnosis
