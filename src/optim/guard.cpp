#include "optim/guard.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/median.h"

namespace strata::optim {
namespace {

constexpr double kNone = std::numeric_limits<double>::infinity();

// The last `count` values, oldest first.
std::vector<double> last_values(const GuardHistory::Values& values, int64_t accepted, int64_t count) {
  std::vector<double> last;
  for (int64_t i = accepted - count; i < accepted; ++i)
    last.push_back(values.recent[static_cast<size_t>(i % kMostGuardWindow)]);
  return last;
}

struct Spread {
  double mean = 0, sigma = 0;
};

Spread plain_spread(const std::vector<double>& values) {
  Spread out;
  for (const double value : values) out.mean += value;
  out.mean /= static_cast<double>(values.size());
  double squares = 0;
  for (const double value : values) squares += (value - out.mean) * (value - out.mean);
  out.sigma = std::sqrt(squares / static_cast<double>(values.size() - 1));
  return out;
}

// Deviations below a share of the median are noise, even if the last values agree more closely.
Spread robust_spread(const std::vector<double>& values, GuardRule::Signal signal) {
  const double median = median_of(values);
  std::vector<double> deviations;
  for (const double value : values) deviations.push_back(std::abs(value - median));
  const double least = (signal == GuardRule::Signal::kLoss ? 0.01 : 0.1) * std::abs(median);
  return {median, std::max(1.4826 * median_of(deviations), least)};
}

// The first 25 values give mean and variance; later ones decay them, the mean first, as in ZClip.
Spread decaying_spread(const std::vector<double>& values) {
  constexpr size_t kWarmup = 25;
  constexpr double kKeep = 0.97;
  Spread out = plain_spread({values.begin(), values.begin() + kWarmup});
  double variance = out.sigma * out.sigma * (kWarmup - 1) / kWarmup;  // not that of a sample
  for (size_t i = kWarmup; i < values.size(); ++i) {
    out.mean = kKeep * out.mean + (1 - kKeep) * values[i];
    const double deviation = values[i] - out.mean;
    variance = kKeep * variance + (1 - kKeep) * deviation * deviation;
  }
  out.sigma = std::sqrt(variance);
  return out;
}

int64_t least_values(const GuardRule& rule) {
  switch (rule.preset) {
    case SpikePreset::kOlmo:
      return std::max<int64_t>(20, rule.window / 2);
    case SpikePreset::kMegatron:
      return rule.window;
    case SpikePreset::kZClip:
      return 25;
    case SpikePreset::kRobustZ:
    case SpikePreset::kRatio:
      break;
  }
  return std::min<int64_t>(rule.window, std::max<int64_t>(20, rule.window / 4));
}

// The value at which a rule fires; infinite if there are not enough values.
struct Limit {
  double fires = kNone;
  Spread spread = {};
};
bool exceeds(SpikePreset preset, double value, const Limit& limit) {
  const bool is_multiple = preset == SpikePreset::kMegatron || preset == SpikePreset::kRatio;
  return is_multiple ? value >= limit.fires && value > 0 : value > limit.fires;
}
Limit limit_of(const GuardRule& rule, const GuardHistory& history) {
  const bool is_loss = rule.signal == GuardRule::Signal::kLoss;
  const GuardHistory::Values& values = is_loss ? history.loss : history.grad_norm;
  if (history.accepted < least_values(rule)) return {};
  if (rule.preset == SpikePreset::kMegatron) {
    double largest = 0;
    for (int32_t i = 0; i < rule.window; ++i)
      largest = std::max(largest, std::abs(values.first[static_cast<size_t>(i)]));
    return {rule.threshold * largest};
  }
  const int64_t all = std::min(history.accepted, kMostGuardWindow);
  const int64_t count = rule.preset == SpikePreset::kZClip ? all : std::min<int64_t>(all, rule.window);
  const std::vector<double> last = last_values(values, history.accepted, count);
  Spread spread;
  switch (rule.preset) {
    case SpikePreset::kRobustZ:
      spread = robust_spread(last, rule.signal);
      break;
    case SpikePreset::kZClip:
      spread = decaying_spread(last);
      break;
    case SpikePreset::kOlmo:
    case SpikePreset::kRatio:
    case SpikePreset::kMegatron:
      spread = plain_spread(last);
      break;
  }
  if (rule.preset == SpikePreset::kRatio) return {rule.threshold * spread.mean, spread};
  return {spread.mean + rule.threshold * spread.sigma, spread};
}

// What a rule that fired clips a norm to.
double clipped_norm(const GuardRule& rule, const Limit& limit, double norm) {
  if (rule.preset != SpikePreset::kZClip) return rule.clip_factor * limit.fires;
  const double z = (norm - limit.spread.mean) / limit.spread.sigma;
  return limit.spread.mean + rule.threshold * rule.threshold / z * limit.spread.sigma;
}

void accept(GuardHistory::Values& values, int64_t number, double value) {
  if (number < kMostGuardWindow) values.first[static_cast<size_t>(number)] = value;
  values.recent[static_cast<size_t>(number % kMostGuardWindow)] = value;
}

}  // namespace

std::string_view name_of(SpikePreset preset) {
  switch (preset) {
    case SpikePreset::kRobustZ:
      return "robust_z";
    case SpikePreset::kOlmo:
      return "olmo";
    case SpikePreset::kMegatron:
      return "megatron";
    case SpikePreset::kZClip:
      return "zclip";
    case SpikePreset::kRatio:
      return "ratio";
  }
  return "";
}

GuardDecision decide(const GuardRules& rules, double loss, double grad_norm, bool has_targets,
                     double clip_norm, GuardHistory& history) {
  GuardDecision out{.no_targets = has_targets ? 0 : 1, .loss = loss, .grad_norm = grad_norm};
  if (has_targets) out.nonfinite = (std::isfinite(loss) ? 0 : 1) | (std::isfinite(grad_norm) ? 0 : 2);
  out.skip = out.no_targets != 0 || out.nonfinite != 0 ? 1 : 0;
  double target = clip_norm > 0 ? clip_norm : kNone;  // norm to clip to
  double counted = grad_norm;                         // added to the history
  for (int r = 0; r < rules.count; ++r) {
    const GuardRule& rule = rules.rules[static_cast<size_t>(r)];
    const Limit limit = limit_of(rule, history);
    out.limit[static_cast<size_t>(r)] = limit.fires;
    const double value = rule.signal == GuardRule::Signal::kLoss ? loss : grad_norm;
    if (out.skip != 0 && (out.no_targets != 0 || out.nonfinite != 0)) continue;
    if (!exceeds(rule.preset, value, limit)) continue;
    out.fired |= uint32_t{1} << r;
    if (rule.effect == GuardRule::Effect::kSkip) out.skip = 1;
    if (rule.effect == GuardRule::Effect::kClip && rule.signal == GuardRule::Signal::kGradNorm) {
      const double norm = clipped_norm(rule, limit, grad_norm);
      target = std::min(target, norm);
      counted = std::min(counted, norm);
    }
  }
  // As torch.nn.utils.clip_grad_norm_: min(1, max_norm / (norm + 1e-6)).
  out.clip = target < kNone ? std::min(1.0, target / (grad_norm + 1e-6)) : 1.0;
  if (out.skip != 0) {
    if (has_targets) ++history.skipped_in_row;
    return out;
  }
  history.skipped_in_row = 0;
  accept(history.loss, history.accepted, loss);
  accept(history.grad_norm, history.accepted, counted);
  ++history.accepted;
  return out;
}

}  // namespace strata::optim
