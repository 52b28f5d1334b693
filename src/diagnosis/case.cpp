#include "diagnosis/case.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace strata::diagnosis {
namespace {

// A spread below these shares of the level is noise, as in recovery's rules (optim/guard.cpp).
constexpr double kLeastLossSpread = 0.01, kLeastGradientSpread = 0.1;

bool is_start(const observe::MetricsEvent& event) {
  return event.event == "start" || event.event == "resume";
}

// Steps until the learning rate reaches its highest value.
int64_t warmup_in(const Series& lr) {
  const double peak = lr.max();
  for (size_t i = 0; i < lr.size(); ++i) {
    if (lr.values()[i] >= 0.999 * peak) return lr.steps()[i];
  }
  return 0;
}

}  // namespace

RunState state_of(const Evidence& evidence) {
  // The last event that begins or ends a start of the program.
  RunState ended = RunState::kFailed;
  bool began = false;
  for (const observe::MetricsEvent& event : evidence.metrics.events()) {
    if (is_start(event)) {
      began = true;
      ended = RunState::kFailed;
    } else if (event.event == "finish") {
      ended = RunState::kFinished;
    } else if (event.event == "interrupt" || event.event == "time_limit") {
      ended = RunState::kInterrupted;
    }
  }
  if (!evidence.locked) return ended;
  return began && ended == RunState::kFailed ? RunState::kRunning : RunState::kWaiting;
}

Case::Case(const Evidence& evidence)
    : run(evidence), state(state_of(evidence)), time(time_account_of(evidence)) {
  const observe::MetricsTable& metrics = run.metrics;
  step = metrics.steps().empty() ? 0 : metrics.steps().back();
  loss = column("loss");
  grad_norm = column("grad_norm");
  lr = column("lr");
  if (run.config) {
    all_steps = config::total_steps(*run.config);
    warmup = config::schedule_of(*run.config).warmup_steps;
    peak_lr = run.config->optimizer.lr;
  } else {
    warmup = warmup_in(lr);
    peak_lr = lr.max();
  }
  window = window_of(loss.size());
  loss_levels = levels_of(loss, window);
  loss_spikes = spikes_of(loss, kLeastLossSpread);
  gradient_spikes = spikes_of(grad_norm, kLeastGradientSpread);
}

Series Case::column(std::string_view name) const {
  return {run.metrics.steps(), run.metrics.column(name)};
}

std::vector<const observe::MetricsEvent*> Case::events(std::string_view name) const {
  std::vector<const observe::MetricsEvent*> found;
  for (const observe::MetricsEvent& event : run.metrics.events()) {
    if (event.event == name) found.push_back(&event);
  }
  return found;
}

std::vector<const observe::MetricsEvent*> Case::events_since_start(std::string_view name) const {
  std::vector<const observe::MetricsEvent*> found;
  for (const observe::MetricsEvent& event : run.metrics.events()) {
    if (is_start(event)) found.clear();
    if (event.event == name) found.push_back(&event);
  }
  return found;
}

const CheckpointFacts* Case::healthy_checkpoint() const {
  for (const CheckpointFacts& one : run.checkpoints) {
    if (one.damage.empty() && one.health && one.health->good()) return &one;
  }
  return nullptr;
}

std::string short_number(double value) {
  return value >= 10 && value < 1e15 ? fmt::format("{:.0f}", value) : fmt::format("{:.2g}", value);
}

int64_t whole_number(double value) {
  constexpr double kMost = 0x1p53;
  return std::isnan(value) ? 0 : static_cast<int64_t>(std::clamp(value, -kMost, kMost));
}

std::string percent(double share) {
  return share < 0.1 ? fmt::format("{:.2g} %", 100 * share) : fmt::format("{:.0f} %", 100 * share);
}

std::string shown(double value) {
  const double size = std::abs(value);
  return size >= 100 && size < 1e6 ? fmt::format("{:.0f}", value) : fmt::format("{:.3g}", value);
}

std::string counted_in(int64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

void add_scaled_lr(const Case& at, double factor, Settings& to) {
  if (at.peak_lr > 0 && std::isfinite(at.peak_lr))
    to.push_back("optimizer.lr=" + short_number(at.peak_lr * factor));
}

void add_longer_warmup(const Case& at, Settings& to) {
  constexpr int64_t kLeast = 100;  // steps, the default
  int64_t steps = std::max(kLeast, 2 * at.warmup);
  if (at.all_steps) steps = std::min(steps, *at.all_steps / 2);
  if (steps > at.warmup) to.push_back(fmt::format("schedule.warmup_steps={}", steps));
}

void add_recovery(const Case& at, Settings& to) {
  if (at.run.config && at.run.config->recovery.rules == config::RecoveryRules::kNone)
    to.emplace_back("recovery.rules=\"auto\"");
}

void add_clipping(const Case& at, double norm, Settings& to) {
  if (!at.run.config || !(norm > 0)) return;
  const double now = at.run.config->training.clip_grad_norm;
  if (now == 0 || now > 1.2 * norm) to.push_back("training.clip_grad_norm=" + short_number(norm));
}

}  // namespace strata::diagnosis
