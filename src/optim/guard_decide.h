// The code of decide() (guard.h) for CPUs and GPUs. Multiplications before an addition round on their own, so
// that both compute the same bits.
#pragma once

#include <cmath>
#include <limits>

#include "base/host_device.h"
#include "optim/guard.h"

namespace strata::optim {

// Elements of decide_in's workspace.
inline constexpr int64_t kGuardWorkspace = 2 * kMostGuardWindow;

namespace guard {

constexpr double kNone = std::numeric_limits<double>::infinity();
constexpr double kNotANumber = std::numeric_limits<double>::quiet_NaN();

// As std::min and std::max, also of NaN; a GPU cannot call those.
template <typename T>
STRATA_HOST_DEVICE inline T least(T a, T b) {
  return b < a ? b : a;
}
template <typename T>
STRATA_HOST_DEVICE inline T greatest(T a, T b) {
  return a < b ? b : a;
}
// Not fused with an addition.
STRATA_HOST_DEVICE inline double times(double a, double b) {
#ifdef __CUDA_ARCH__
  return __dmul_rn(a, b);
#else
#ifdef __HIP__
#pragma clang fp contract(off)
#endif
  return a * b;
#endif
}
STRATA_HOST_DEVICE inline bool is_finite(double value) {
  return std::fabs(value) < kNone;
}
// A GPU cannot call std::array's members either.
template <typename T, size_t kCount>
STRATA_HOST_DEVICE inline T* elements(std::array<T, kCount>& array) {
  return reinterpret_cast<T*>(&array);
}
template <typename T, size_t kCount>
STRATA_HOST_DEVICE inline const T* elements(const std::array<T, kCount>& array) {
  return reinterpret_cast<const T*>(&array);
}

// Shell sort, with the gaps of Ciura (2001).
STRATA_HOST_DEVICE inline void sort(double* values, int64_t count) {
  constexpr int kGaps[] = {301, 132, 57, 23, 10, 4, 1};
  for (const int gap : kGaps) {
    for (int64_t i = gap; i < count; ++i) {
      const double value = values[i];
      int64_t place = i;
      for (; place >= gap && value < values[place - gap]; place -= gap) values[place] = values[place - gap];
      values[place] = value;
    }
  }
}
// Sorts the values. As median_of (base/median.h).
STRATA_HOST_DEVICE inline double median(double* values, int64_t count) {
  if (count == 0) return kNotANumber;
  sort(values, count);
  if (count % 2 == 1) return values[count / 2];
  // Halves first: the sum of two large values may be infinite.
  return values[count / 2] / 2 + values[count / 2 - 1] / 2;
}

// The last `count` values, oldest first.
STRATA_HOST_DEVICE inline void last_values(const GuardHistory::Values& values, int64_t accepted,
                                           int64_t count, double* last) {
  for (int64_t i = 0; i < count; ++i)
    last[i] = elements(values.recent)[(accepted - count + i) % kMostGuardWindow];
}

struct Spread {
  double mean = 0, sigma = 0;
};

STRATA_HOST_DEVICE inline Spread plain_spread(const double* values, int64_t count) {
  Spread out;
  for (int64_t i = 0; i < count; ++i) out.mean += values[i];
  out.mean /= static_cast<double>(count);
  double squares = 0;
  for (int64_t i = 0; i < count; ++i) squares += times(values[i] - out.mean, values[i] - out.mean);
  out.sigma = std::sqrt(squares / static_cast<double>(count - 1));
  return out;
}

// Deviations below a share of the median are noise, even if the last values agree more closely. Sorts the
// values and writes their deviations after the first kMostGuardWindow elements.
STRATA_HOST_DEVICE inline Spread robust_spread(double* values, int64_t count, GuardRule::Signal signal) {
  const double middle = median(values, count);
  double* const deviations = values + kMostGuardWindow;
  for (int64_t i = 0; i < count; ++i) deviations[i] = std::fabs(values[i] - middle);
  const double noise = (signal == GuardRule::Signal::kLoss ? 0.01 : 0.1) * std::fabs(middle);
  return {middle, greatest(1.4826 * median(deviations, count), noise)};
}

// The first 25 values give mean and variance; later ones decay them, the mean first, as in ZClip.
STRATA_HOST_DEVICE inline Spread decaying_spread(const double* values, int64_t count) {
  constexpr int64_t kWarmup = 25;
  constexpr double kKeep = 0.97;
  Spread out = plain_spread(values, kWarmup);
  double variance = out.sigma * out.sigma * (kWarmup - 1) / kWarmup;  // not that of a sample
  for (int64_t i = kWarmup; i < count; ++i) {
    out.mean = times(kKeep, out.mean) + times(1 - kKeep, values[i]);
    const double deviation = values[i] - out.mean;
    variance = times(kKeep, variance) + times((1 - kKeep) * deviation, deviation);
  }
  out.sigma = std::sqrt(variance);
  return out;
}

STRATA_HOST_DEVICE inline int64_t least_values(const GuardRule& rule) {
  switch (rule.preset) {
    case SpikePreset::kOlmo:
      return greatest<int64_t>(20, rule.window / 2);
    case SpikePreset::kMegatron:
      return rule.window;
    case SpikePreset::kZClip:
      return 25;
    case SpikePreset::kRobustZ:
    case SpikePreset::kRatio:
      break;
  }
  return least<int64_t>(rule.window, greatest<int64_t>(20, rule.window / 4));
}

// The value at which a rule fires; infinite if there are not enough values.
struct Limit {
  double fires = kNone;
  Spread spread = {};
};
STRATA_HOST_DEVICE inline bool exceeds(SpikePreset preset, double value, const Limit& limit) {
  const bool is_multiple = preset == SpikePreset::kMegatron || preset == SpikePreset::kRatio;
  return is_multiple ? value >= limit.fires && value > 0 : value > limit.fires;
}
STRATA_HOST_DEVICE inline Limit limit_of(const GuardRule& rule, const GuardHistory& history,
                                         double* workspace) {
  const bool is_loss = rule.signal == GuardRule::Signal::kLoss;
  const GuardHistory::Values& values = is_loss ? history.loss : history.grad_norm;
  if (history.accepted < least_values(rule)) return {};
  if (rule.preset == SpikePreset::kMegatron) {
    double largest = 0;
    for (int32_t i = 0; i < rule.window; ++i)
      largest = greatest(largest, std::fabs(elements(values.first)[i]));
    return {rule.threshold * largest, {}};
  }
  const int64_t all = least(history.accepted, int64_t{kMostGuardWindow});
  const int64_t count = rule.preset == SpikePreset::kZClip ? all : least<int64_t>(all, rule.window);
  last_values(values, history.accepted, count, workspace);
  Spread spread;
  switch (rule.preset) {
    case SpikePreset::kRobustZ:
      spread = robust_spread(workspace, count, rule.signal);
      break;
    case SpikePreset::kZClip:
      spread = decaying_spread(workspace, count);
      break;
    case SpikePreset::kOlmo:
    case SpikePreset::kRatio:
    case SpikePreset::kMegatron:
      spread = plain_spread(workspace, count);
      break;
  }
  if (rule.preset == SpikePreset::kRatio) return {rule.threshold * spread.mean, spread};
  return {spread.mean + times(rule.threshold, spread.sigma), spread};
}

// What a rule that fired clips a norm to.
STRATA_HOST_DEVICE inline double clipped_norm(const GuardRule& rule, const Limit& limit, double norm) {
  if (rule.preset != SpikePreset::kZClip) return rule.clip_factor * limit.fires;
  const double z = (norm - limit.spread.mean) / limit.spread.sigma;
  return limit.spread.mean + times(rule.threshold * rule.threshold / z, limit.spread.sigma);
}

STRATA_HOST_DEVICE inline void accept(GuardHistory::Values& values, int64_t number, double value) {
  if (number < kMostGuardWindow) elements(values.first)[number] = value;
  elements(values.recent)[number % kMostGuardWindow] = value;
}

}  // namespace guard

// decide() with a workspace of kGuardWorkspace elements.
STRATA_HOST_DEVICE inline GuardDecision decide_in(const GuardRules& rules, double loss, double grad_norm,
                                                  bool has_targets, double clip_norm, GuardHistory& history,
                                                  double* workspace) {
  GuardDecision out;
  out.no_targets = has_targets ? 0 : 1;
  out.loss = loss;
  out.grad_norm = grad_norm;
  if (has_targets) out.nonfinite = (guard::is_finite(loss) ? 0 : 1) | (guard::is_finite(grad_norm) ? 0 : 2);
  out.skip = out.no_targets != 0 || out.nonfinite != 0 ? 1 : 0;
  double target = clip_norm > 0 ? clip_norm : guard::kNone;  // norm to clip to
  double counted = grad_norm;                                // added to the history
  for (int r = 0; r < rules.count; ++r) {
    const GuardRule& rule = guard::elements(rules.rules)[r];
    const guard::Limit limit = guard::limit_of(rule, history, workspace);
    guard::elements(out.limit)[r] = limit.fires;
    const double value = rule.signal == GuardRule::Signal::kLoss ? loss : grad_norm;
    if (out.skip != 0 && (out.no_targets != 0 || out.nonfinite != 0)) continue;
    if (!guard::exceeds(rule.preset, value, limit)) continue;
    out.fired |= uint32_t{1} << r;
    if (rule.effect == GuardRule::Effect::kSkip) out.skip = 1;
    if (rule.effect == GuardRule::Effect::kClip && rule.signal == GuardRule::Signal::kGradNorm) {
      const double norm = guard::clipped_norm(rule, limit, grad_norm);
      target = guard::least(target, norm);
      counted = guard::least(counted, norm);
    }
  }
  // As torch.nn.utils.clip_grad_norm_: min(1, max_norm / (norm + 1e-6)).
  out.clip = target < guard::kNone ? guard::least(1.0, target / (grad_norm + 1e-6)) : 1.0;
  if (out.skip != 0) {
    if (has_targets) ++history.skipped_in_row;
    return out;
  }
  history.skipped_in_row = 0;
  guard::accept(history.loss, history.accepted, loss);
  guard::accept(history.grad_norm, history.accepted, counted);
  ++history.accepted;
  return out;
}

}  // namespace strata::optim
