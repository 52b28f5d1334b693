// strata simulate: a step of a run over time, on a cluster or on this machine.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "config/plan.h"
#include "library/explanation.h"
#include "observe/trace.h"
#include "program/price.h"

namespace strata::library {

// Immutable.
class Simulation {
 public:
  // All places of the plan's pipeline must be compiled.
  explicit Simulation(std::shared_ptr<const config::RunPlan> plan);

  double seconds() const { return price_.seconds; }  // of a step
  int64_t fullest_bytes() const;                     // of the rank that needs most memory
  double low() const;                                // s of a step, of the 90 % interval
  double high() const;
  const config::RunPlan& plan() const { return *plan_; }
  const program::StepPrice& price() const { return price_; }
  const std::vector<Programs>& places() const { return places_; }
  const hardware::Machine& machine() const { return machine_; }
  int64_t rank_of(int32_t place) const;  // the first rank of a place
  std::string text() const;
  // {"step_time_s", "step_time_low_s", "step_time_high_s", "tokens_per_s", "bubble", "exposed": {AXIS: s}, "ranks":
  // [{"rank", "memory_bytes", "memory": {CATEGORY: bytes}, "computing_s", "end_s"}], "mfu": {CONVENTION: value},
  // "fits", "critical_path": [{"rank", "what", "begin_s", "end_s"}]}, one rank for each place of the pipeline. `mfu` is
  // empty if the device's published peak is not known.
  nlohmann::ordered_json json() const;
  // A timeline with a thread for each queue of each place.
  std::vector<observe::TraceEvent> timeline(std::vector<std::string>& threads) const;

 private:
  // A part of the longest chain of work and waiting, at whose end the step ends.
  struct Link {
    int32_t place = 0;
    std::string what;  // an action, or "message"
    double begin = 0, end = 0;
  };
  std::vector<Link> critical_path() const;
  nlohmann::ordered_json exposed() const;
  nlohmann::ordered_json mfu() const;

  std::shared_ptr<const config::RunPlan> plan_;
  std::vector<Programs> places_;
  hardware::Machine machine_;
  program::StepPrice price_;
  double width_ = 0;  // of the 90 % interval: the factor is exp(width)
};

}  // namespace strata::library
