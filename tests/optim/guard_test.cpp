// Rules of an update against plain computations: the published rules on whole series, and all presets with other
// code.
#include "optim/guard.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include <fmt/core.h>

#include "base/random.h"

namespace strata::optim {
namespace {

using Signal = GuardRule::Signal;
using Effect = GuardRule::Effect;
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNotANumber = std::numeric_limits<double>::quiet_NaN();

struct Step {
  double loss = 1, norm = 1;
  bool has_targets = true;
};

GuardRules rules_of(const std::vector<GuardRule>& rules) {
  GuardRules out;
  for (const GuardRule& rule : rules) out.rules[static_cast<size_t>(out.count++)] = rule;
  return out;
}

class Guard {
 public:
  explicit Guard(const std::vector<GuardRule>& rules, double clip_norm = 0)
      : rules_(rules_of(rules)), clip_norm_(clip_norm) {}
  GuardDecision step(const Step& step) {
    return decide(rules_, step.loss, step.norm, step.has_targets, clip_norm_, history_);
  }
  // The decision on a step that is not made.
  GuardDecision would(const Step& step) const {
    GuardHistory copy = history_;
    return decide(rules_, step.loss, step.norm, step.has_targets, clip_norm_, copy);
  }
  const GuardHistory& history() const { return history_; }

 private:
  GuardRules rules_;
  double clip_norm_;
  GuardHistory history_;
};

// Numbers from a seed.
class Random {
 public:
  explicit Random(uint64_t seed) : seed_(seed) {}
  double uniform() { return (philox({seed_, 9}, next_++)[0] + 0.5) / 4294967296.0; }
  double normal() { return std::sqrt(-2 * std::log(uniform())) * std::cos(6.283185307179586 * uniform()); }
  bool chance(double of) { return uniform() < of; }

 private:
  uint64_t seed_, next_ = 0;
};

// A falling loss and a noisy norm; some steps are spikes, not finite, or without targets.
std::vector<Step> series(uint64_t seed, size_t steps, bool clean = false) {
  Random random(seed);
  std::vector<Step> out;
  for (size_t i = 0; i < steps; ++i) {
    const double level = 3 + 5 * std::exp(-static_cast<double>(i) / 60);
    Step step{level + 0.05 * random.normal(), std::exp(0.3 * random.normal())};
    if (!clean) {
      if (random.chance(0.03)) step.loss *= 1 + 3 * random.uniform();
      if (random.chance(0.03)) step.norm *= 1 + 30 * random.uniform();
      if (random.chance(0.01)) step.loss = kNotANumber;
      if (random.chance(0.01)) step.norm = kInfinity;
      if (random.chance(0.02)) step = {0, 0, false};
    }
    out.push_back(step);
  }
  return out;
}

// The rules, from lists of all accepted values.
class Plain {
 public:
  Plain(std::vector<GuardRule> rules, double clip_norm) : rules_(std::move(rules)), clip_norm_(clip_norm) {}

  GuardDecision step(const Step& step) {
    GuardDecision out{.loss = step.loss, .grad_norm = step.norm};
    bool skip = !step.has_targets;
    out.no_targets = skip ? 1 : 0;
    if (step.has_targets && !std::isfinite(step.loss)) out.nonfinite += 1;
    if (step.has_targets && !std::isfinite(step.norm)) out.nonfinite += 2;
    const bool judged = step.has_targets && out.nonfinite == 0;
    skip = !judged;
    double norm = clip_norm_ > 0 ? clip_norm_ : kInfinity, enters = step.norm;
    for (size_t r = 0; r < rules_.size(); ++r) {
      const GuardRule& rule = rules_[r];
      const std::vector<double>& values = rule.signal == Signal::kLoss ? losses_ : norms_;
      out.limit[r] = limit(rule, values);
      const double value = rule.signal == Signal::kLoss ? step.loss : step.norm;
      const bool is_multiple = rule.preset == SpikePreset::kMegatron || rule.preset == SpikePreset::kRatio;
      if (!judged || value < out.limit[r] || (value == out.limit[r] && !is_multiple)) continue;
      out.fired |= 1U << r;
      if (rule.effect == Effect::kSkip) skip = true;
      if (rule.effect != Effect::kClip) continue;
      double to = out.limit[r] * rule.clip_factor;
      if (rule.preset == SpikePreset::kZClip) {
        const auto [mean, sigma] = decayed(values);
        to = mean + rule.threshold * rule.threshold * sigma * sigma / (value - mean);
      }
      norm = std::min(norm, to);
      enters = std::min(enters, to);
    }
    out.skip = skip ? 1 : 0;
    if (norm < kInfinity) out.clip = std::min(1.0, norm / (step.norm + 1e-6));
    if (!skip) {
      losses_.push_back(step.loss);
      norms_.push_back(enters);
    }
    return out;
  }

 private:
  static double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    const size_t n = values.size();
    return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
  }
  static double mean(const std::vector<double>& values) {
    long double sum = 0;
    for (const double value : values) sum += value;
    return static_cast<double>(sum / static_cast<long double>(values.size()));
  }
  // Mean and deviation that decay with every value, as in arXiv 2504.02507: 25 values of warm-up.
  static std::pair<double, double> decayed(const std::vector<double>& values) {
    const std::vector<double> first(values.begin(), values.begin() + 25);
    double center = mean(first), variance = 0;
    for (const double value : first) variance += (value - center) * (value - center) / 25;
    for (size_t i = 25; i < values.size(); ++i) {
      center += 0.03 * (values[i] - center);
      variance += 0.03 * ((values[i] - center) * (values[i] - center) - variance);
    }
    return {center, std::sqrt(variance)};
  }
  static double limit(const GuardRule& rule, const std::vector<double>& values) {
    const size_t window = static_cast<size_t>(rule.window), n = values.size();
    const size_t few = std::min(window, std::max<size_t>(20, window / 4));
    const std::vector<double> last(values.end() - static_cast<std::ptrdiff_t>(std::min(n, window)),
                                   values.end());
    switch (rule.preset) {
      case SpikePreset::kMegatron:
        if (n < window) return kInfinity;
        return rule.threshold * *std::max_element(values.begin(), values.begin() + rule.window);
      case SpikePreset::kZClip: {
        if (n < 25) return kInfinity;
        const auto [center, sigma] = decayed(values);
        return center + rule.threshold * sigma;
      }
      case SpikePreset::kOlmo: {
        if (n < std::max<size_t>(20, window / 2)) return kInfinity;
        const double center = mean(last);
        long double squares = 0;
        for (const double value : last)
          squares += static_cast<long double>(value - center) * (value - center);
        return center + rule.threshold * std::sqrt(static_cast<double>(
                                             squares / static_cast<long double>(last.size() - 1)));
      }
      case SpikePreset::kRatio:
        return n < few ? kInfinity : rule.threshold * mean(last);
      case SpikePreset::kRobustZ: {
        if (n < few) return kInfinity;
        const double center = median(last);
        std::vector<double> deviations;
        for (const double value : last) deviations.push_back(std::abs(value - center));
        // A spread below 1 % of the loss or 10 % of the norm is taken for noise.
        const double floor = (rule.signal == Signal::kLoss ? 0.01 : 0.1) * center;
        return center + rule.threshold * std::max(floor, 1.4826 * median(deviations));
      }
    }
    return kInfinity;
  }

  std::vector<GuardRule> rules_;
  double clip_norm_;
  std::vector<double> losses_, norms_;
};

void expect_close(double found, double expected, double tolerance, const std::string& where) {
  if (std::isinf(expected)) {
    EXPECT_EQ(found, expected) << where;
  } else {
    EXPECT_NEAR(found, expected, tolerance * std::abs(expected)) << where;
  }
}

const std::vector<std::pair<SpikePreset, double>> kPresets{{SpikePreset::kRobustZ, 8},
                                                           {SpikePreset::kOlmo, 6},
                                                           {SpikePreset::kMegatron, 10},
                                                           {SpikePreset::kZClip, 2.5},
                                                           {SpikePreset::kRatio, 2}};

TEST(Guard, EveryPresetIsThePlainComputation) {
  uint64_t seed = 0;
  int fired = 0;
  for (const auto& [preset, usual] : kPresets) {
    for (const Signal signal : {Signal::kLoss, Signal::kGradNorm}) {
      for (const int window : {20, 33, 128, 512}) {
        for (const Effect effect : {Effect::kReport, Effect::kSkip, Effect::kClip}) {
          if (signal == Signal::kLoss && effect == Effect::kClip) continue;  // only norms are clipped
          // Lower thresholds fire more often.
          const GuardRule rule{
              signal, preset, effect, window, usual * (seed % 3 == 0 ? 0.5 : 1), seed % 2 == 0 ? 1 : 0.7};
          const double clip_norm = seed % 4 == 0 ? 0.8 : 0;
          Guard guard({rule}, clip_norm);
          Plain plain({rule}, clip_norm);
          size_t at = 0;
          for (const Step& step : series(++seed, 700)) {
            const GuardDecision is = guard.step(step), expected = plain.step(step);
            const std::string where =
                fmt::format("{} window {} seed {} step {}", name_of(preset), window, seed, ++at);
            // After 512 values zclip starts from the oldest that it remembers.
            const double tolerance = preset == SpikePreset::kZClip ? 1e-4 : 1e-12;
            ASSERT_EQ(is.skip, expected.skip) << where;
            ASSERT_EQ(is.fired, expected.fired) << where;
            ASSERT_EQ(is.nonfinite, expected.nonfinite) << where;
            ASSERT_EQ(is.no_targets, expected.no_targets) << where;
            expect_close(is.limit[0], expected.limit[0], tolerance, where);
            if (std::isfinite(step.norm)) expect_close(is.clip, expected.clip, tolerance, where);
            fired += is.fired != 0 ? 1 : 0;
          }
        }
      }
    }
  }
  EXPECT_GT(fired, 1000);
}

// OLMo-core's SkipStepOptimizer: no step is judged before it has half an interval of values, the newest included;
// then it is skipped unless value − mean ≤ 6 σ of up to 128 values before it. It keeps the values of skipped steps,
// as a rule here does that only reports.
TEST(Guard, OlmoIsThePublishedRule) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Guard guard({{Signal::kLoss, SpikePreset::kOlmo, Effect::kReport, 128, 6},
                 {Signal::kGradNorm, SpikePreset::kOlmo, Effect::kReport, 128, 6}});
    std::vector<Step> all = series(seed, 400, true);
    Random random(seed + 1000);
    std::vector<double> values[2];
    for (size_t i = 0; i < all.size(); ++i) {
      if (random.chance(0.05)) all[i].loss += 4 * random.uniform();
      if (random.chance(0.05)) all[i].norm += 20 * random.uniform();
      const uint32_t fired = guard.step(all[i]).fired;
      const double now[2] = {all[i].loss, all[i].norm};
      for (int r = 0; r < 2; ++r) {
        auto& kept = values[r];
        if (kept.size() >= 64) {
          const size_t n = std::min<size_t>(128, kept.size());
          double sum = 0, squares = 0;
          for (size_t k = kept.size() - n; k < kept.size(); ++k) sum += kept[k];
          for (size_t k = kept.size() - n; k < kept.size(); ++k) squares += std::pow(kept[k] - sum / n, 2);
          const bool skips = !(now[r] - sum / n <= 6 * std::sqrt(squares / (n - 1)));
          EXPECT_EQ((fired >> r & 1) != 0, skips) << "seed " << seed << " step " << i << " rule " << r;
        } else {
          EXPECT_EQ(fired >> r & 1, 0u);
        }
        kept.push_back(now[r]);
      }
    }
  }
}

// Megatron-LM's is_unexpectedly_large(): |value| ≥ 10 times the largest of the first 100 finite values.
TEST(Guard, MegatronIsThePublishedRule) {
  Guard guard({{Signal::kGradNorm, SpikePreset::kMegatron, Effect::kReport, 100, 10}});
  std::vector<Step> all = series(3, 400, true);
  double largest = 0;
  for (size_t i = 0; i < 100; ++i) {
    largest = std::max(largest, all[i].norm);
    EXPECT_EQ(guard.step(all[i]).fired, 0u);
  }
  for (size_t i = 100; i < 400; ++i) {
    if (i % 10 == 0) all[i].norm = 10 * largest * (i % 20 == 0 ? 1 : 0.999);  // exactly ten times is a spike
    EXPECT_EQ(guard.step(all[i]).fired, all[i].norm >= 10 * largest ? 1u : 0u) << i;
  }
  EXPECT_EQ(guard.would({1, 10 * largest}).fired, 1u);
}

// ZClip (arXiv 2504.02507): z > 2.5 clips to mean + 2.5² / z · σ, and the clipped norm enters the averages.
TEST(Guard, ZClipIsThePublishedRule) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Guard guard({{Signal::kGradNorm, SpikePreset::kZClip, Effect::kClip, 128, 2.5}});
    Random random(seed);
    std::vector<double> warmup;
    double mean = 0, variance = 0;
    int clipped = 0;
    for (int i = 0; i < 400; ++i) {
      const double norm =
          std::exp(0.2 * random.normal()) * (random.chance(0.05) ? 1 + 9 * random.uniform() : 1);
      const GuardDecision is = guard.step({1, norm});
      ASSERT_EQ(is.skip, 0);
      if (i < 25) {
        EXPECT_EQ(is.clip, 1);
        warmup.push_back(norm);
        if (i < 24) continue;
        for (const double value : warmup) mean += value / 25;
        for (const double value : warmup) variance += (value - mean) * (value - mean) / 25;
        continue;
      }
      const double sigma = std::sqrt(variance), z = (norm - mean) / sigma;
      const double to = z > 2.5 ? mean + 2.5 * 2.5 / z * sigma : norm;
      EXPECT_NEAR(is.clip * norm, to, 1e-5 * to) << "seed " << seed << " step " << i;
      clipped += z > 2.5 ? 1 : 0;
      mean = 0.97 * mean + 0.03 * to;
      variance = 0.97 * variance + 0.03 * (to - mean) * (to - mean);
    }
    EXPECT_GT(clipped, 5);
  }
}

// The first step that can be judged, by preset and window.
TEST(Guard, ARuleNeedsEnoughValues) {
  const struct {
    SpikePreset preset;
    int window, values;
  } kCases[] = {
      {SpikePreset::kRobustZ, 128, 32}, {SpikePreset::kRobustZ, 64, 20},    {SpikePreset::kRobustZ, 8, 8},
      {SpikePreset::kRatio, 128, 32},   {SpikePreset::kRatio, 2, 2},        {SpikePreset::kOlmo, 128, 64},
      {SpikePreset::kOlmo, 20, 20},     {SpikePreset::kMegatron, 100, 100}, {SpikePreset::kZClip, 128, 25}};
  for (const auto& one : kCases) {
    Guard guard({{Signal::kLoss, one.preset, Effect::kSkip, one.window, 3}});
    int first = 0;
    for (const Step& step : series(5, 200, true)) {
      const GuardDecision spike = guard.would({1e6, 1});
      EXPECT_EQ(spike.fired != 0, std::isfinite(spike.limit[0]));
      EXPECT_EQ(spike.skip != 0, spike.fired != 0);
      if (spike.fired != 0) break;
      guard.step(step);
      ++first;
    }
    EXPECT_EQ(first, one.values) << name_of(one.preset) << " " << one.window;
  }
}

TEST(Guard, SkippedValuesDoNotEnterTheHistory) {
  for (const auto& [preset, threshold] : kPresets) {
    for (const Signal signal : {Signal::kLoss, Signal::kGradNorm}) {
      Guard guard({{signal, preset, Effect::kSkip, 100, threshold}});
      for (Step step : series(8, 150, true)) {
        step.norm = 1 + 0.1 * std::tanh(std::log(step.norm));  // never a spike
        step.loss = 3 + 0.01 * step.norm;
        ASSERT_EQ(guard.step(step).skip, 0) << name_of(preset);
      }
      const GuardHistory before = guard.history();
      const double limit = guard.would({}).limit[0];
      // Any number of steps at a new level is skipped, and so are values that are not finite.
      for (int i = 0; i < 600; ++i) {
        Step step = signal == Signal::kLoss ? Step{1e3, 1} : Step{3, 1e3};
        if (i % 7 == 0) step.loss = kNotANumber;
        if (i % 11 == 0) step.norm = kInfinity;
        ASSERT_EQ(guard.step(step).skip, 1) << name_of(preset) << " " << i;
        EXPECT_EQ(guard.history().skipped_in_row, i + 1);
      }
      EXPECT_EQ(guard.history().accepted, before.accepted);
      EXPECT_EQ(guard.history().loss.recent, before.loss.recent);
      EXPECT_EQ(guard.history().loss.first, before.loss.first);
      EXPECT_EQ(guard.history().grad_norm.recent, before.grad_norm.recent);
      EXPECT_EQ(guard.would({}).limit[0], limit);
      EXPECT_EQ(guard.step({3, 1}).skip, 0);
      EXPECT_EQ(guard.history().skipped_in_row, 0);
      EXPECT_EQ(guard.history().accepted, before.accepted + 1);
    }
  }
}

// Without any rule, too.
TEST(Guard, AStepThatIsNotFiniteIsNotMade) {
  for (const bool with_rule : {false, true}) {
    Guard guard(with_rule ? std::vector<GuardRule>{{Signal::kLoss, SpikePreset::kRatio, Effect::kSkip, 2, 3}}
                          : std::vector<GuardRule>{});
    for (int i = 0; i < 5; ++i) guard.step({3, 1});
    const double values[] = {1, kNotANumber, kInfinity, -kInfinity};
    for (const double loss : values) {
      for (const double norm : values) {
        const GuardDecision is = guard.would({loss, norm});
        const int expected = (std::isfinite(loss) ? 0 : 1) + (std::isfinite(norm) ? 0 : 2);
        EXPECT_EQ(is.nonfinite, expected) << loss << " " << norm;
        EXPECT_EQ(is.skip, expected != 0 ? 1 : 0) << loss << " " << norm;
        EXPECT_EQ(is.fired, 0u);
      }
    }
  }
}

// A step without targets has no loss: it is neither an error nor a spike, and does not interrupt a series of skips.
TEST(Guard, AStepWithoutTargetsIsNotJudged) {
  Guard guard({{Signal::kLoss, SpikePreset::kRatio, Effect::kSkip, 2, 3}});
  for (int i = 0; i < 5; ++i) guard.step({3, 1});
  guard.step({kNotANumber, 1});
  for (const double loss : {0.0, 1e9, kNotANumber}) {
    const GuardDecision is = guard.step({loss, 1, false});
    EXPECT_EQ(is.skip, 1);
    EXPECT_EQ(is.no_targets, 1);
    EXPECT_EQ(is.nonfinite, 0);
    EXPECT_EQ(is.fired, 0u);
    EXPECT_EQ(guard.history().skipped_in_row, 1);
    EXPECT_EQ(guard.history().accepted, 5);
  }
}

TEST(Guard, SeveralRulesFireTogether) {
  const GuardRule loss{Signal::kLoss, SpikePreset::kRatio, Effect::kSkip, 4, 3};
  const GuardRule norm{Signal::kGradNorm, SpikePreset::kRatio, Effect::kClip, 4, 2};
  const GuardRule report{Signal::kGradNorm, SpikePreset::kMegatron, Effect::kReport, 4, 5};
  const auto decided = [&](const std::vector<GuardRule>& rules, double loss_value, double norm_value) {
    Guard guard(rules);
    for (int i = 0; i < 4; ++i) guard.step({3, 1});
    return guard.step({loss_value, norm_value});
  };
  GuardDecision is = decided({loss, norm, report}, 30, 40);
  EXPECT_EQ(is.fired, 7u);
  EXPECT_EQ(is.skip, 1);
  EXPECT_EQ((std::vector<double>{is.limit[0], is.limit[1], is.limit[2]}), (std::vector<double>{9, 2, 5}));
  is = decided({norm, loss, report}, 3, 4);  // in another order, below the last limit
  EXPECT_EQ(is.fired, 1u);
  EXPECT_EQ(is.skip, 0);
  EXPECT_NEAR(is.clip, 0.5, 1e-6);
  is = decided({report}, 3, 40);
  EXPECT_EQ(is.fired, 1u);
  EXPECT_EQ(is.skip, 0);
  EXPECT_EQ(is.clip, 1);
  // All places for rules.
  is = decided(std::vector<GuardRule>(kMostGuardRules, loss), 30, 1);
  EXPECT_EQ(is.fired, 0xffu);
}

// The smallest of training.clip_grad_norm and the limits of rules that fired.
TEST(Guard, TheSmallestLimitClips) {
  const GuardRule mild{Signal::kGradNorm, SpikePreset::kRatio, Effect::kClip, 4, 4};
  GuardRule strict{Signal::kGradNorm, SpikePreset::kRatio, Effect::kClip, 4, 2};
  const auto clip = [&](const std::vector<GuardRule>& rules, double clip_norm, double norm) {
    Guard guard(rules, clip_norm);
    for (int i = 0; i < 4; ++i) guard.step({3, 1});
    return guard.step({3, norm}).clip * (norm + 1e-6);
  };
  EXPECT_NEAR(clip({}, 0, 8), 8, 1e-5);
  EXPECT_NEAR(clip({}, 0.5, 8), 0.5, 1e-12);
  EXPECT_NEAR(clip({}, 0.5, 0.4), 0.4, 1e-5);  // below the limit
  EXPECT_NEAR(clip({mild}, 0, 8), 4, 1e-12);
  EXPECT_NEAR(clip({mild, strict}, 0, 8), 2, 1e-12);
  EXPECT_NEAR(clip({mild, strict}, 0, 3), 2, 1e-12);  // one fires
  EXPECT_NEAR(clip({mild, strict}, 0.5, 8), 0.5, 1e-12);
  strict.clip_factor = 0.25;
  EXPECT_NEAR(clip({strict}, 0, 8), 0.5, 1e-12);
  EXPECT_NEAR(clip({strict}, 0, 1.9), 1.9, 1e-5);
  // Later limits follow from the clipped norm of a rule, but not from that of clip_grad_norm.
  Guard guard({mild}, 0.5);
  for (const double norm : {1.0, 1.0, 1.0, 1.0, 100.0}) guard.step({3, norm});
  EXPECT_DOUBLE_EQ(guard.would({}).limit[0], 4 * (1 + 1 + 1 + 4) / 4.0);
}

// Properties that hold for any series.
TEST(Guard, DecisionsDoNotDependOnUnits) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    std::vector<GuardRule> rules;
    for (const auto& [preset, threshold] : kPresets)
      rules.push_back(
          {seed % 2 == 0 ? Signal::kLoss : Signal::kGradNorm, preset, Effect::kSkip, 64, threshold});
    Guard guard(rules), scaled(rules);
    for (const Step& step : series(seed, 300)) {
      const GuardDecision a = guard.step(step);
      // A power of two changes no rounding.
      const GuardDecision b = scaled.step({step.loss * 1024, step.norm / 4096, step.has_targets});
      ASSERT_EQ(a.fired, b.fired);
      ASSERT_EQ(a.skip, b.skip);
    }
  }
}

TEST(Guard, ALargerValueFiresToo) {
  Random random(1);
  for (const auto& [preset, threshold] : kPresets) {
    Guard guard({{Signal::kLoss, preset, Effect::kSkip, 64, threshold}});
    for (const Step& step : series(2, 300)) {
      bool fired = false;
      for (double value = 0.5; value < 1e4; value *= 1.5) {
        const bool now = guard.would({value, 1}).fired != 0;
        EXPECT_TRUE(now || !fired) << name_of(preset) << " " << value;
        fired = now;
      }
      guard.step(step);
    }
  }
}

// A run that does not change never has a spike, and neither does one that is all zeros.
TEST(Guard, AConstantIsNotASpike) {
  for (const double value : {0.0, 1e-8, 3.0, 1e8}) {
    std::vector<GuardRule> rules;
    for (const auto& [preset, threshold] : kPresets) {
      rules.push_back({Signal::kLoss, preset, Effect::kSkip, 32, threshold});
      if (rules.size() < 4) rules.push_back({Signal::kGradNorm, preset, Effect::kSkip, 32, threshold});
    }
    Guard guard(rules);
    for (int i = 0; i < 200; ++i) ASSERT_EQ(guard.step({value, value}).fired, 0u) << value << " " << i;
  }
}

}  // namespace
}  // namespace strata::optim
