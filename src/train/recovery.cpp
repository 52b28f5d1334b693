#include "train/recovery.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "config/names.h"
#include "train/snapshots.h"

namespace strata::training {
namespace {

using RuleWhen = config::RecoveryRule::When;
using RuleAction = config::RecoveryRule::Action;
using optim::GuardRule;
using optim::SpikePreset;

constexpr int64_t kSkipsBeforeRollback = 3;
constexpr double kNotANumber = std::numeric_limits<double>::quiet_NaN();

// The threshold of a spike rule that names none. Gradient norms have longer tails than losses.
double usual_threshold(SpikePreset preset, GuardRule::Signal signal) {
  const bool is_loss = signal == GuardRule::Signal::kLoss;
  switch (preset) {
    case SpikePreset::kRobustZ:
      return is_loss ? 8 : 20;
    case SpikePreset::kOlmo:
      return 6;
    case SpikePreset::kMegatron:
      return 10;
    case SpikePreset::kZClip:
      return 2.5;
    case SpikePreset::kRatio:
      return is_loss ? 3 : 2;
  }
  return 0;
}

GuardRule::Effect effect_of(RuleAction action, bool changes) {
  if (!changes) return GuardRule::Effect::kReport;
  switch (action) {
    case RuleAction::kClip:
      return GuardRule::Effect::kClip;
    case RuleAction::kEaseLr:
    case RuleAction::kShrinkEmbedding:
    case RuleAction::kAlert:
      return GuardRule::Effect::kReport;
    case RuleAction::kSkipUpdate:
    case RuleAction::kRollback:
    case RuleAction::kRollbackSkip:
    case RuleAction::kStop:
      break;
  }
  return GuardRule::Effect::kSkip;
}

// The mean loss of `count` accepted steps, of which `ago` newer ones follow.
double level(const optim::GuardHistory& history, int64_t ago, int64_t count) {
  double sum = 0;
  for (int64_t i = history.accepted - ago - count; i < history.accepted - ago; ++i)
    sum += history.loss.recent[static_cast<size_t>(i % optim::kMostGuardWindow)];
  return sum / static_cast<double>(count);
}
int64_t remembered(const optim::GuardHistory& history) {
  return std::min(history.accepted, optim::kMostGuardWindow);
}

// The lowest level of earlier steps.
std::optional<double> lowest_level(const optim::GuardHistory& history, int64_t window) {
  std::optional<double> lowest;
  for (int64_t ago = window; ago + window <= remembered(history); ago += window) {
    const double one = level(history, ago, window);
    lowest = std::min(lowest.value_or(one), one);
  }
  return lowest;
}

}  // namespace

Recovery::Recovery(const config::RecoveryTable& keys) : keys_(keys) {}

std::vector<Recovery::Rule> Recovery::rules() const {
  std::vector<config::RecoveryRule> given = keys_.rule;
  if (given.empty()) {
    const auto add = [&](RuleWhen when, RuleAction action) {
      config::RecoveryRule& rule = given.emplace_back();
      rule.when = when;
      rule.action = action;
    };
    add(RuleWhen::kNonfinite, RuleAction::kSkipUpdate);
    add(RuleWhen::kLossSpike, RuleAction::kSkipUpdate);
    add(RuleWhen::kGradSpike, RuleAction::kSkipUpdate);
    add(RuleWhen::kLossHigh, RuleAction::kRollbackSkip);
    add(RuleWhen::kCorruption, RuleAction::kRollback);
  }
  std::vector<Rule> rules;
  for (const config::RecoveryRule& one : given) {
    Rule& rule = rules.emplace_back(Rule{.when = one.when.value(), .action = one.action.value()});
    rule.for_steps = one.for_steps.value_or(100);
    rule.factor = one.factor.value_or(rule.action == RuleAction::kShrinkEmbedding ? 0.1
                                      : rule.action == RuleAction::kClip          ? 1.0
                                                                                  : 0.5);
    switch (rule.when) {
      case RuleWhen::kLossSpike:
      case RuleWhen::kGradSpike: {
        const auto signal =
            rule.when == RuleWhen::kLossSpike ? GuardRule::Signal::kLoss : GuardRule::Signal::kGradNorm;
        const SpikePreset preset = one.preset.value_or(SpikePreset::kRobustZ);
        const int64_t window = one.window.value_or(preset == SpikePreset::kMegatron ? 100 : 128);
        rule.guard = GuardRule{.signal = signal,
                               .preset = preset,
                               .effect = effect_of(rule.action, keys_.rules != config::RecoveryRules::kNone),
                               .window = static_cast<int32_t>(window),
                               .threshold = one.threshold.value_or(usual_threshold(preset, signal)),
                               .clip_factor = rule.factor};
        break;
      }
      case RuleWhen::kLossHigh:
        rule.threshold = one.threshold.value_or(1.25);
        rule.window = one.window.value_or(16);
        break;
      case RuleWhen::kDivergence:
        rule.threshold = one.threshold.value_or(1.05);
        break;
      case RuleWhen::kPlateau:
        rule.threshold = one.threshold.value_or(0.001);
        break;
      case RuleWhen::kLogitGrowth:
        rule.threshold = one.threshold.value_or(1000);
        break;
      case RuleWhen::kNonfinite:
      case RuleWhen::kCorruption:
        break;
    }
  }
  return rules;
}

optim::GuardRules Recovery::guard_rules() const {
  optim::GuardRules out;
  for (const Rule& rule : rules()) {
    if (!rule.guard || out.count == optim::kMostGuardRules) continue;
    out.rules[static_cast<size_t>(out.count++)] = *rule.guard;
  }
  return out;
}

std::optional<Recovery::Fired> Recovery::fired(const Rule& rule, const Observed& observed, int guard) {
  const optim::GuardDecision& decision = observed.decision;
  const optim::GuardHistory& history = observed.history;
  const auto above = [](double measured, double limit) {
    return measured > limit ? std::optional(Fired{measured, limit}) : std::nullopt;
  };
  switch (rule.when) {
    case RuleWhen::kNonfinite:
      if (decision.nonfinite == 0) return std::nullopt;
      return Fired{(decision.nonfinite & 1) != 0 ? decision.loss : decision.grad_norm, kNotANumber};
    case RuleWhen::kLossSpike:
    case RuleWhen::kGradSpike:
      if (guard >= optim::kMostGuardRules || (decision.fired >> guard & 1) == 0) return std::nullopt;
      return Fired{rule.when == RuleWhen::kLossSpike ? decision.loss : decision.grad_norm,
                   decision.limit[static_cast<size_t>(guard)]};
    case RuleWhen::kLossHigh: {
      const auto lowest = lowest_level(history, rule.window);
      if (!lowest || decision.skip != 0) return std::nullopt;
      return above(level(history, 0, rule.window), rule.threshold * *lowest);
    }
    case RuleWhen::kDivergence:
    case RuleWhen::kPlateau: {
      if (remembered(history) < 2 * rule.for_steps || decision.skip != 0) return std::nullopt;
      const double now = level(history, 0, rule.for_steps),
                   before = level(history, rule.for_steps, rule.for_steps);
      if (rule.when == RuleWhen::kDivergence) return above(now, rule.threshold * before);
      return above(now, (1 - rule.threshold) * before);
    }
    case RuleWhen::kLogitGrowth:
      return observed.logit_max ? above(*observed.logit_max, rule.threshold) : std::nullopt;
    case RuleWhen::kCorruption:  // judge_corruption()
      break;
  }
  return std::nullopt;
}

void Recovery::act(const Rule& rule, size_t index, const Fired& fired, const Observed& observed,
                   const Journal& journal, Judgement& out) {
  Intervention intervention{.at_step = observed.step,
                            .rule = std::string(config::spelled(rule.when)),
                            .action = std::string(config::spelled(rule.action)),
                            .measured = fired.measured,
                            .limit = fired.limit};
  const auto alert = [&] {
    last_alert_.resize(std::max(last_alert_.size(), index + 1), std::numeric_limits<int64_t>::min() / 2);
    if (observed.step - last_alert_[index] < rule.for_steps && observed.step > last_alert_[index]) return;
    last_alert_[index] = observed.step;
    out.alerts.push_back({intervention.rule, fired.measured, fired.limit});
  };
  if (keys_.rules == config::RecoveryRules::kNone) return alert();
  switch (rule.action) {
    case RuleAction::kSkipUpdate: {
      // A step is skipped once, however many rules fire.
      const auto skips = [](const Intervention& one) { return one.action == "skip_update"; };
      if (std::none_of(out.interventions.begin(), out.interventions.end(), skips))
        out.interventions.push_back(std::move(intervention));
      return;
    }
    case RuleAction::kClip:
      out.interventions.push_back(std::move(intervention));
      return;
    case RuleAction::kRollback:
    case RuleAction::kRollbackSkip:
      if (!out.rollback)
        out.rollback = {.why = std::move(intervention),
                        .skips_data = rule.action == RuleAction::kRollbackSkip};
      return;
    case RuleAction::kEaseLr:
    case RuleAction::kShrinkEmbedding: {
      const auto kind =
          rule.action == RuleAction::kEaseLr ? Effect::Kind::kEaseLr : Effect::Kind::kShrinkEmbedding;
      if (journal.factor(kind, observed.step + 1) != 1) return;  // still in effect
      intervention.factor = rule.factor;
      intervention.for_steps = rule.for_steps;
      out.interventions.push_back(std::move(intervention));
      out.effects.push_back(
          {.kind = kind, .step = observed.step, .factor = rule.factor, .for_steps = rule.for_steps});
      return;
    }
    case RuleAction::kAlert:
      return alert();
    case RuleAction::kStop:
      out.interventions.push_back(intervention);
      if (out.stop.empty())
        out.stop = fmt::format("the rule {} ended the run: {:.4g}, limit {:.4g}", intervention.rule,
                               fired.measured, fired.limit);
      return;
  }
}

Judgement Recovery::judge_corruption(const Observed& observed, const Journal& journal) {
  Judgement out;
  const std::vector<Rule> all = rules();
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i].when == RuleWhen::kCorruption)
      act(all[i], i, {.measured = 1, .limit = kNotANumber}, observed, journal, out);
  }
  const std::string found = text_of(*observed.corruption);
  const bool acts = !out.interventions.empty() || out.rollback || !out.stop.empty();
  if (!acts && observed.corruption->splits_ranks)
    out.stop = fmt::format("{}, so that ranks judge the step in different ways", found);
  if (!out.rollback) return out;
  const auto before = std::count_if(
      journal.interventions().begin(), journal.interventions().end(), [&](const Intervention& one) {
        return one.rule == config::spelled(RuleWhen::kCorruption) && one.to_step &&
               observed.step <= one.at_step + detection_delay(keys_);
      });
  if (before == 0) return out;
  if (before == 1) {
    out.rollback->older = true;
    return out;
  }
  out.rollback.reset();
  out.stop = observed.corruption->rank
                 ? fmt::format(
                       "{}, again after two rollbacks: the machine of rank {} stores or computes wrong "
                       "values; start the run without it",
                       found, *observed.corruption->rank)
                 : fmt::format(
                       "{}, again after two rollbacks; a third replica would show which machine stores or "
                       "computes wrong values (parallel.replicate = 3)",
                       found);
  return out;
}

Judgement Recovery::judge(const Observed& observed, const Journal& journal) {
  Judgement out;
  const optim::GuardDecision& decision = observed.decision;
  if (observed.corruption) {
    out = judge_corruption(observed, journal);
    if (out.rollback || !out.interventions.empty() || !out.stop.empty()) return out;
  }
  if (decision.no_targets != 0) return out;
  if (decision.overflowed != 0) {  // part of fp16 training, until the scale cannot become smaller
    if (decision.loss_scale <= optim::kLeastLossScale)
      out.stop = fmt::format("gradients in fp16 are not finite even with a loss scale of {}",
                             optim::kLeastLossScale);
    return out;
  }
  const std::vector<Rule> all = rules();
  int guard = 0;
  bool handles_nonfinite = false;
  for (size_t i = 0; i < all.size(); ++i) {
    const std::optional<Fired> found = fired(all[i], observed, guard);
    if (all[i].guard) ++guard;
    if (!found) continue;
    if (all[i].when == RuleWhen::kNonfinite) handles_nonfinite = true;
    act(all[i], i, *found, observed, journal, out);
  }
  const bool changes = keys_.rules != config::RecoveryRules::kNone;
  if (decision.nonfinite != 0 && (!changes || !handles_nonfinite) && out.stop.empty()) {
    out.stop = fmt::format("loss {} or gradient norm {} is not finite", decision.loss, decision.grad_norm);
    return out;
  }
  if (!changes || !keys_.rule.empty()) return out;
  // The usual rules: three skipped steps in a row mean that weights or data are bad, and a run must not end
  // with weights that are not finite.
  const bool is_hopeless = observed.history.skipped_in_row >= kSkipsBeforeRollback ||
                           (observed.is_last && !observed.has_finite_weights);
  if (!out.rollback && !out.interventions.empty() && is_hopeless) {
    Intervention why = out.interventions.back();
    why.action = config::spelled(RuleAction::kRollbackSkip);
    out.rollback = {.why = std::move(why), .skips_data = true};
  }
  const Intervention* last = journal.last_rollback();
  if (out.rollback && last != nullptr && observed.step <= last->at_step + detection_delay(keys_)) {
    constexpr double kFactor = 0.5;
    constexpr int64_t kSteps = 100;
    out.rollback->older = true;
    Intervention ease = out.rollback->why;
    ease.action = config::spelled(RuleAction::kEaseLr);
    ease.factor = kFactor;
    ease.for_steps = kSteps;
    out.interventions.push_back(std::move(ease));
    out.effects.push_back({.kind = Effect::Kind::kEaseLr, .factor = kFactor, .for_steps = kSteps});
  }
  return out;
}

StepSettings step_settings(const Journal& journal, const Recovery& recovery, int64_t step) {
  return {.lr_factor = journal.factor(Effect::Kind::kEaseLr, step),
          .embedding_scale = journal.factor(Effect::Kind::kShrinkEmbedding, step),
          .rules = recovery.guard_rules()};
}

std::string Recovery::limit_reached(const Journal& journal, int64_t step, int64_t interventions,
                                    int64_t lost) const {
  const int64_t made = journal.recent(step);
  if (made + interventions > keys_.max_interventions) {
    return fmt::format("{} interventions in 1,000 steps are more than recovery.max_interventions = {}",
                       made + interventions, keys_.max_interventions);
  }
  if (journal.lost_steps() + lost > keys_.max_lost_steps) {
    return fmt::format("rollbacks would have undone {} steps, more than recovery.max_lost_steps = {}",
                       journal.lost_steps() + lost, keys_.max_lost_steps);
  }
  return {};
}

}  // namespace strata::training
