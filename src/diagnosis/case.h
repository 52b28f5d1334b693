// A run with the figures that several findings need, computed once, and the settings that they propose.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "diagnosis/evidence.h"
#include "diagnosis/run_state.h"
#include "diagnosis/series.h"
#include "diagnosis/time_account.h"

namespace strata::diagnosis {

struct Case {
  explicit Case(const Evidence& evidence);

  const Evidence& run;
  RunState state;
  TimeAccount time;
  int64_t step = 0;                  // last surviving one
  std::optional<int64_t> all_steps;  // planned
  Series loss, grad_norm, lr;
  double peak_lr = 0;  // configured, or the highest; NaN: unknown
  int64_t warmup = 0;  // steps
  size_t window = 0;   // for trends of the loss
  std::vector<WindowLevel> loss_levels;
  std::vector<Spike> loss_spikes, gradient_spikes;

  // A number of every step.
  Series column(std::string_view name) const;
  std::vector<const observe::MetricsEvent*> events(std::string_view name) const;
  // Those of the present start of the program.
  std::vector<const observe::MetricsEvent*> events_since_start(std::string_view name) const;
  // The newest checkpoint that is intact and healthy.
  const CheckpointFacts* healthy_checkpoint() const;
};

// Settings to try. Without a known value, no setting.
using Settings = std::vector<std::string>;
void add_scaled_lr(const Case& at, double factor, Settings& to);
void add_longer_warmup(const Case& at, Settings& to);
void add_recovery(const Case& at, Settings& to);  // if rules = "none"
void add_clipping(const Case& at, double norm, Settings& to);
// A number with two significant digits, as TOML.
std::string short_number(double value);

// A count that is stored as a double; damaged files may have any number.
int64_t whole_number(double value);

// "1.5 %"
std::string percent(double share);
// Three digits, without an exponent up to a million.
std::string shown(double value);
// "1 step", "2 steps"
std::string counted_in(int64_t count, std::string_view noun);

}  // namespace strata::diagnosis
