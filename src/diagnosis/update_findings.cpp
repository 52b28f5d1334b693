// The learning rate, clipping, the batch and the optimizer.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "base/clock.h"
#include "diagnosis/findings.h"
#include "observe/run_history.h"
#include "optim/adamw/adamw.h"

namespace strata::diagnosis {
namespace {

// The values of the figure in recent steps after the warm-up.
Series settled(const Case& at, std::string_view name, size_t most = 500) {
  return at.column(name).between(at.warmup, at.step).last(most);
}

struct AdamConstants {
  double beta2 = 0.95, eps = 1e-8;
};

// Of a run with AdamW; nothing for other optimizers, whose updates do not divide by the root of a mean square.
std::optional<AdamConstants> adam_of(const Case& at) {
  if (!at.run.config) return std::nullopt;
  const config::OptimizerTable& table = at.run.config->optimizer;
  const optim::Optimizer& constants = table.constants_of(table.name);
  if (!constants.is<optim::AdamW>()) return std::nullopt;
  return AdamConstants{constants.as<optim::AdamW>().beta2, constants.as<optim::AdamW>().eps};
}

// Signs that training was unstable until a step.
struct Instability {
  int64_t spikes = 0;      // of loss or gradient norm
  double growth = 1;       // of the gradient norm's level, over its lowest before
  double loss_rise = 1;    // of the highest loss, over the first
  int64_t first_step = 0;  // of a spike
};

Instability instability_until(const Case& at, int64_t last) {
  Instability out;
  constexpr int64_t kSameSpike = 5;  // steps: a spike of the gradient often comes with one of the loss
  std::vector<int64_t> steps;
  for (const auto* spikes : {&at.loss_spikes, &at.gradient_spikes}) {
    for (const Spike& spike : *spikes) {
      if (spike.first_step <= last) steps.push_back(spike.first_step);
    }
  }
  std::sort(steps.begin(), steps.end());
  for (size_t i = 0; i < steps.size(); ++i) {
    if (i == 0 || steps[i] > steps[i - 1] + kSameSpike) ++out.spikes;
  }
  out.first_step = steps.empty() ? last : steps.front();
  constexpr size_t kQuarters = 4, kLeastValues = 40;  // so that a quarter has a median
  const Series norms = at.grad_norm.between(0, last);
  if (norms.size() >= kLeastValues) {
    const std::vector<WindowLevel> levels = levels_of(norms, norms.size() / kQuarters);
    const auto lowest =
        std::min_element(levels.begin(), levels.end(),
                         [](const WindowLevel& a, const WindowLevel& b) { return a.median < b.median; });
    if (lowest->median > 0) out.growth = levels.back().median / lowest->median;
  }
  const Series losses = at.loss.between(0, last);
  if (!losses.empty() && losses.values().front() > 0) out.loss_rise = losses.max() / losses.values().front();
  return out;
}

// Steps that a mean of squares with this beta2 needs until it is reliable: 2 / (1 - beta2) (Ma and Yarats,
// arXiv 1910.04209).
int64_t needed_warmup(const Case& at) {
  const double beta2 = adam_of(at).value_or(AdamConstants{}).beta2;
  return static_cast<int64_t>(std::ceil(2 / std::max(1e-4, 1 - beta2)));
}

std::optional<Found> find_warmup_too_short(const Case& at) {
  constexpr double kRise = 1.1;  // above the first loss, which is that of random weights
  const int64_t needed = needed_warmup(at);
  if (at.warmup >= needed || at.lr.size() < 10) return std::nullopt;
  const Instability seen = instability_until(at, 2 * needed);
  if (seen.loss_rise < kRise) return std::nullopt;
  Found found{.sentence = fmt::format(
                  "The warm-up of {} is too short: the loss rose to {:.2g} times its first value within {} "
                  "steps; the optimizer's mean squares need {} steps to settle.",
                  counted_in(at.warmup, "step"), seen.loss_rise, 2 * needed, needed),
              .evidence = {{"warmup_steps", at.warmup}, {"needed", needed}, {"loss_rise", seen.loss_rise}},
              .settings = {}};
  const int64_t steps = std::max(needed, config::auto_warmup_steps(at.all_steps.value_or(0)));
  found.settings.push_back(fmt::format("schedule.warmup_steps={}", steps));
  return found;
}

std::optional<Found> find_learning_rate_too_high(const Case& at) {
  constexpr double kGrowth = 3;  // gradient norms fall or stay level in a healthy warm-up
  constexpr int64_t kLeastSpikes = 2, kLeastSteps = 100;
  const int64_t until = std::max(kLeastSteps, 2 * at.warmup);
  const Instability seen = instability_until(at, until);
  if (seen.spikes < kLeastSpikes && seen.growth < kGrowth) return std::nullopt;
  std::string signs;
  if (seen.spikes > 0)
    signs = counted_in(seen.spikes, "spike") + fmt::format(" since step {}", seen.first_step);
  if (seen.growth >= kGrowth)
    signs += (signs.empty() ? "" : " and ") + fmt::format("gradients that grew {:.2g} times", seen.growth);
  Found found{
      .sentence = fmt::format("The learning rate of {:.2g} is probably too high: the first {} steps had {}.",
                              at.peak_lr, until, signs),
      .evidence = {{"until_step", until},
                   {"spikes", seen.spikes},
                   {"gradient_growth", seen.growth},
                   {"lr", at.peak_lr},
                   {"warmup_steps", at.warmup}},
      .settings = {}};
  add_scaled_lr(at, 0.5, found.settings);
  add_longer_warmup(at, found.settings);
  return found;
}

std::optional<Found> find_clipping_always(const Case& at) {
  constexpr double kShare = 0.95;
  constexpr size_t kLeastSteps = 100;
  if (!at.run.config || at.run.config->training.clip_grad_norm <= 0) return std::nullopt;
  const double limit = at.run.config->training.clip_grad_norm;
  const Series norms = settled(at, "grad_norm");
  if (norms.size() < kLeastSteps) return std::nullopt;
  const auto above =
      std::count_if(norms.values().begin(), norms.values().end(), [&](double norm) { return norm > limit; });
  const double share = static_cast<double>(above) / static_cast<double>(norms.size()),
               median = norms.median();
  if (share < kShare) return std::nullopt;
  return Found{.sentence = fmt::format(
                   "{} of the last {} gradients were clipped: their median norm is {} and the limit {}, so "
                   "all updates have the same length and outliers are not damped.",
                   percent(share), norms.size(), shown(median), shown(limit)),
               .evidence = {{"share", share},
                            {"median", median},
                            {"clip_grad_norm", limit},
                            {"since_step", norms.steps().front()}},
               .settings = {"training.clip_grad_norm=" + short_number(2 * median)}};
}

std::optional<Found> find_clipping_never(const Case& at) {
  constexpr double kShare = 0.1;  // of the limit
  constexpr size_t kLeastSteps = 500;
  if (!at.run.config || at.run.config->training.clip_grad_norm <= 0) return std::nullopt;
  const double limit = at.run.config->training.clip_grad_norm;
  const Series norms = settled(at, "grad_norm");
  if (norms.size() < kLeastSteps || !(norms.max() < kShare * limit)) return std::nullopt;
  return Found{
      .sentence = fmt::format(
          "Clipping has no effect: the largest gradient norm of the last {} steps is {} and the limit "
          "{}, so a spike of ten times the usual gradient would pass.",
          norms.size(), shown(norms.max()), shown(limit)),
      .evidence = {{"largest", norms.max()}, {"median", norms.median()}, {"clip_grad_norm", limit}},
      .settings = {"training.clip_grad_norm=" + short_number(3 * norms.max())}};
}

// Updates over weights, as norms of all: about 1e-3 in most runs.
constexpr double kLargeUpdate = 0.05;  // replaces the weights in 20 steps
constexpr double kSmallUpdate = 1e-5;  // replaces them in 100,000
constexpr size_t kLeastRatios = 20;

std::optional<Found> find_update_ratio_large(const Case& at) {
  const Series ratios = settled(at, "update_ratio", 200);
  if (ratios.size() < kLeastRatios || ratios.median() < kLargeUpdate) return std::nullopt;
  Found found{
      .sentence = fmt::format(
          "An update changes the weights by {} (median since step {}), far above the usual 0.1 %: the "
          "learning rate is too high.",
          percent(ratios.median()), ratios.steps().front()),
      .evidence = {{"update_ratio", ratios.median()},
                   {"since_step", ratios.steps().front()},
                   {"limit", kLargeUpdate}},
      .settings = {}};
  add_scaled_lr(at, 0.2, found.settings);
  return found;
}

std::optional<Found> find_update_ratio_small(const Case& at) {
  const Series ratios = settled(at, "update_ratio", 200);
  // At the end of the schedule small updates are intended.
  const double rate = settled(at, "lr", 200).median();
  if (ratios.size() < kLeastRatios || ratios.median() > kSmallUpdate || !(rate >= 0.5 * at.lr.max()))
    return std::nullopt;
  Found found{
      .sentence = fmt::format(
          "An update changes the weights by only {:.1e} of their size (median since step {}): the model "
          "barely learns at this learning rate.",
          ratios.median(), ratios.steps().front()),
      .evidence = {{"update_ratio", ratios.median()},
                   {"since_step", ratios.steps().front()},
                   {"limit", kSmallUpdate}},
      .settings = {}};
  add_scaled_lr(at, 5, found.settings);
  return found;
}

// The root mean squares of the gradients of the newest sample by tensor, or one of all.
std::vector<double> gradient_sizes(const Case& at) {
  std::vector<double> sizes;
  if (!at.run.layers.empty()) {
    for (const TensorFigures& one : at.run.layers.back().tensors) {
      // A gradient of zero belongs to frozen or unused weights.
      if (one.grad_rms > 0) sizes.push_back(one.grad_rms);
    }
  }
  if (!sizes.empty()) return sizes;
  double parameters = 0;
  for (const observe::MetricsEvent& event : at.run.metrics.events()) {
    if (const double count = observe::number_of(event, "parameters"); count > 0) parameters = count;
  }
  const Series norms = settled(at, "grad_norm");
  if (parameters > 0 && !norms.empty()) sizes.push_back(norms.median() / std::sqrt(parameters));
  return sizes;
}

std::optional<Found> find_gradient_below_eps(const Case& at) {
  constexpr double kShare = 0.1;  // of the tensors
  const std::optional<AdamConstants> adam = adam_of(at);
  const std::vector<double> sizes = gradient_sizes(at);
  if (!adam || sizes.empty()) return std::nullopt;
  std::vector<double> below;
  std::copy_if(sizes.begin(), sizes.end(), std::back_inserter(below),
               [&](double size) { return size > 0 && size < adam->eps; });
  const double share = static_cast<double>(below.size()) / static_cast<double>(sizes.size());
  if (share < kShare) return std::nullopt;
  const double median = median_of(below);
  // Two decades of margin.
  const double eps = std::pow(10.0, std::max(-30.0, std::floor(std::log10(median)) - 2));
  return Found{
      .sentence = fmt::format(
          "Gradients are smaller than the optimizer's eps in {} of {} tensors (median {:.1e}, eps {:.1e}): "
          "their updates shrink with them.",
          below.size(), sizes.size(), median, adam->eps),
      .evidence = {{"tensors", sizes.size()},
                   {"below", below.size()},
                   {"median", median},
                   {"eps", adam->eps}},
      .settings = {fmt::format("optimizer.eps={:.0e}", eps)}};
}

// The gradient noise scale (McCandlish et al., arXiv 1812.06162), in tokens: with a batch of this size half of
// the squared gradient is noise.
struct NoiseFigures {
  double scale = 0, batch = 0;  // tokens
  int64_t sequences = 0;        // of the batch
};

std::optional<NoiseFigures> noise_figures(const Case& at) {
  constexpr size_t kLeastValues = 20;  // it is an average already, and measured every few steps
  const Series scales = settled(at, "noise_scale", 100);
  if (!at.run.config || scales.size() < kLeastValues || !(scales.median() > 0)) return std::nullopt;
  const config::TrainingTable& training = at.run.config->training;
  return NoiseFigures{.scale = scales.median(),
                      .batch = static_cast<double>(training.global_batch_size) *
                               static_cast<double>(training.sequence_length),
                      .sequences = training.global_batch_size};
}

// Beyond a factor of 10 either way the batch is on the flat part of the trade between steps and tokens: a
// tenth of the noise scale needs 11 times the fewest steps, ten times it 11 times the fewest tokens.
constexpr double kFarFromNoise = 10;

Found report_noise(const NoiseFigures& noise, const char* side, const char* remedy, int64_t sequences) {
  return {.sentence = fmt::format("The batch of {} tokens is far {} the gradient noise scale of {}: {}.",
                                  human_count(noise.batch), side, human_count(noise.scale), remedy),
          .evidence = {{"noise_scale", noise.scale},
                       {"batch_tokens", noise.batch},
                       {"global_batch_size", noise.sequences}},
          .settings = {fmt::format("training.global_batch_size={}", std::max<int64_t>(1, sequences))}};
}

std::optional<Found> find_batch_below_noise(const Case& at) {
  const auto noise = noise_figures(at);
  if (!noise || noise->scale < kFarFromNoise * noise->batch) return std::nullopt;
  return report_noise(*noise, "below",
                      "a larger batch needs fewer steps for nearly the same number of tokens",
                      4 * noise->sequences);
}

std::optional<Found> find_batch_above_noise(const Case& at) {
  const auto noise = noise_figures(at);
  if (!noise || noise->batch < kFarFromNoise * noise->scale) return std::nullopt;
  return report_noise(*noise, "above", "a smaller batch reaches the same loss with fewer tokens",
                      noise->sequences / 4);
}

}  // namespace

std::span<const FindingKind> update_findings() {
  static constexpr FindingKind kKinds[] = {
      {"learning_rate_too_high", "spikes or growing gradients during the warm-up or soon after",
       find_learning_rate_too_high},
      {"warmup_too_short",
       "the loss rises above its first value, and the warm-up is shorter than 2 / (1 - beta2)",
       find_warmup_too_short},
      {"clipping_always", "at least 95 % of the gradients are clipped", find_clipping_always},
      {"clipping_never", "no gradient reaches a tenth of the limit", find_clipping_never},
      {"update_ratio_large", "updates of more than 5 % of the weights", find_update_ratio_large},
      {"update_ratio_small", "updates of less than 0.001 % of the weights, not at the end of the schedule",
       find_update_ratio_small},
      {"gradient_below_eps", "gradients smaller than AdamW's eps in a tenth of the tensors",
       find_gradient_below_eps},
      {"batch_below_noise", "the gradient noise scale is at least 10 times the batch",
       find_batch_below_noise},
      {"batch_above_noise", "the batch is at least 10 times the gradient noise scale",
       find_batch_above_noise},
  };
  return kKinds;
}

}  // namespace strata::diagnosis
