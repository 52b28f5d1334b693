#include <fmt/format.h>

#include "config/names.h"
#include "config/validate.h"

namespace strata::config {
namespace {

void check_rule(const RunConfig& config, size_t index, Report& report) {
  using enum RecoveryRule::When;
  using enum RecoveryRule::Action;
  const RecoveryRule& rule = config.recovery.rule[index];
  const std::string path = fmt::format("recovery.rule.{}", index);
  if (!rule.when && !report.unread(path + ".when"))
    report(path + ".when", "found none, expected an event, such as \"loss_spike\"");
  if (!rule.action && !report.unread(path + ".action"))
    report(path + ".action", "found none, expected a reaction, such as \"skip_update\"");
  if (!rule.when || !rule.action) return;
  const bool is_spike = rule.when == kLossSpike || rule.when == kGradSpike;
  const bool has_threshold = is_spike || rule.when == kLossHigh || rule.when == kDivergence ||
                             rule.when == kPlateau || rule.when == kLogitGrowth;
  const std::string_view when = spelled(*rule.when), action = spelled(*rule.action);
  if (!rule.preset.is_word() && !is_spike)
    report(path + ".preset", "found it with when = \"{}\"; presets are for loss_spike and grad_spike", when);
  if (!rule.threshold.is_word() && !has_threshold)
    report(path + ".threshold", "found it with when = \"{}\", which has none; leave it out", when);
  if (rule.preset == optim::SpikePreset::kZClip && rule.when == kLossSpike)
    report(path + ".preset", "found \"zclip\" for the loss, expected when = \"grad_spike\"");
  if (rule.action == kClip && rule.when != kGradSpike)
    report(path + ".action", "found \"clip\" with when = \"{}\", expected when = \"grad_spike\"", when);
  // An update can be left out only for what its own step shows.
  if (rule.action == kSkipUpdate && !is_spike && rule.when != kNonfinite) {
    report(path + ".action",
           "found \"skip_update\" with when = \"{}\", which is known only after the update; expected "
           "rollback_skip, rollback, ease_lr, alert or stop",
           when);
  }
  if (rule.when == kNonfinite &&
      (rule.action == kEaseLr || rule.action == kShrinkEmbedding || rule.action == kAlert)) {
    report(path + ".action",
           "found \"{}\" with when = \"nonfinite\": such an update is never made; expected skip_update, "
           "rollback, rollback_skip or stop",
           action);
  }
  if (is_spike && !rule.window.is_word() && rule.preset == optim::SpikePreset::kOlmo && *rule.window < 20)
    report(path + ".window", "found {}: the rule could never fire; olmo needs 20 values", *rule.window);
  const int64_t last = config.training.tokens ? 0 : config.training.steps;
  if (!rule.window.is_word() && last > 0 && *rule.window >= last &&
      rule.preset == optim::SpikePreset::kMegatron) {
    report(path + ".window", "found {} for a run of {} steps: the rule could never fire; expected less",
           *rule.window, last);
  }
}

}  // namespace

void check_recovery(const RunConfig& config, Report& report) {
  const RecoveryTable& recovery = config.recovery;
  if (recovery.snapshot.kind != Interval::Kind::kNever && recovery.snapshot.kind != Interval::Kind::kSteps) {
    report("recovery.snapshot", "found {}, expected steps, such as \"50 steps\", or \"never\"",
           to_string(recovery.snapshot));
  }
  if (recovery.compare_replicas.kind != Interval::Kind::kNever &&
      recovery.compare_replicas.kind != Interval::Kind::kAuto &&
      recovery.compare_replicas.kind != Interval::Kind::kSteps) {
    report("recovery.compare_replicas",
           "found {}, expected steps, such as \"10 steps\", \"auto\" or \"never\"",
           to_string(recovery.compare_replicas));
  }
  if (recovery.recompute_check.kind != Interval::Kind::kNever &&
      recovery.recompute_check.kind != Interval::Kind::kSteps) {
    report("recovery.recompute_check", "found {}, expected steps, such as \"100 steps\", or \"never\"",
           to_string(recovery.recompute_check));
  }
  if (recovery.copies.kind == Interval::Kind::kSeconds || recovery.copies.kind == Interval::Kind::kTokens) {
    report("recovery.copies", "found {}, expected steps, such as \"20 steps\", \"auto\" or \"never\"",
           to_string(recovery.copies));
  }
  if (!recovery.detection_delay.is_word() && recovery.snapshot.kind == Interval::Kind::kSteps &&
      recovery.snapshot.count > *recovery.detection_delay) {
    report("recovery.detection_delay",
           "found {}, which is shorter than the interval of snapshots ({}): none would be old enough when an "
           "error is noticed; expected at least {}",
           *recovery.detection_delay, to_string(recovery.snapshot), recovery.snapshot.count);
  }
  if (recovery.rules == RecoveryRules::kNone && !recovery.rule.empty())
    report("recovery.rules", "found \"none\" and [[recovery.rule]], expected one of them");
  for (size_t i = 0; i < recovery.rule.size(); ++i) check_rule(config, i, report);
}

}  // namespace strata::config
