// Judges every step by the rules of [recovery] and chooses the reaction. The same decision on all ranks: it uses
// only numbers that are the same on all of them.
//
// Non-finite values and spikes are found on the device before the update (optim/guard.h); what shows only
// over many steps is found here, from the values of accepted steps, after it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "optim/guard.h"
#include "train/corruption.h"
#include "train/journal.h"
#include "train/step_runner.h"

namespace strata::training {

// What a step showed.
struct Observed {
  int64_t step = 0;
  optim::GuardDecision decision = {};
  optim::GuardHistory history = {};
  std::optional<double> logit_max = {};
  bool is_last = false;  // step of the run
  bool has_finite_weights = true;
  std::optional<Corruption> corruption = {};
};

// A rule that fired without an intervention.
struct Alert {
  std::string rule;
  double measured = 0, limit = 0;
};

struct Judgement {
  std::vector<Intervention> interventions;  // but for the rollback
  std::vector<Effect> effects;              // of these; after a rollback they hold from its target on
  std::vector<Alert> alerts;
  struct Rollback {
    Intervention why;         // without the step that it goes to
    bool skips_data = false;  // the data since that step are left out
    bool older = false;       // not to the step that the last rollback went to
  };
  std::optional<Rollback> rollback;
  std::string stop;  // why the run ends; empty: it goes on
};

class Recovery {
 public:
  // `keys` may change later; it must outlive this.
  explicit Recovery(const config::RecoveryTable& keys);

  // For the device, to be written before every step.
  optim::GuardRules guard_rules() const;
  Judgement judge(const Observed& observed, const Journal& journal);
  // Why the run must end instead of making this many further interventions or losing this many further steps;
  // empty: it need not.
  std::string limit_reached(const Journal& journal, int64_t step, int64_t interventions, int64_t lost) const;

 private:
  struct Rule {
    config::RecoveryRule::When when;
    config::RecoveryRule::Action action;
    std::optional<optim::GuardRule> guard = {};  // spikes
    double threshold = 0;
    int64_t window = 0, for_steps = 0;
    double factor = 1;
  };
  struct Fired {
    double measured = 0, limit = 0;
  };
  std::vector<Rule> rules() const;
  // If it neither acts nor stops the run, all ranks have observed the same.
  Judgement judge_corruption(const Observed& observed, const Journal& journal);
  static std::optional<Fired> fired(const Rule& rule, const Observed& observed, int guard);
  void act(const Rule& rule, size_t index, const Fired& fired, const Observed& observed,
           const Journal& journal, Judgement& out);

  const config::RecoveryTable& keys_;
  std::vector<int64_t> last_alert_;  // step, by rule
};

// The settings of a step by journal and rules.
StepSettings step_settings(const Journal& journal, const Recovery& recovery, int64_t step);

}  // namespace strata::training
