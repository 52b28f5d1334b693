// What a run takes before it starts: memory, time and programs of one rank, in words and as JSON. The source of
// `strata explain` and of the library's Plan.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "config/plan.h"
#include "config/ramp.h"
#include "hardware/cluster_spec.h"
#include "strata/train.h"

namespace strata::library {

using Programs = std::shared_ptr<const program::ProgramSet>;

// The plan that strata train would make now on `ranks` ranks, for these places on the pipeline axis. Programs that
// exceed the budget are kept. Writes nothing. `asked` is valid.
std::shared_ptr<const config::RunPlan> plan_as_trained(const config::RunConfig& asked, int64_t ranks,
                                                       std::vector<int32_t> places);
// The same for hosts of a cluster that need not exist: by name or file (planning::resolve_cluster), changed by `sets`.
// Without one, that of plan_as_trained(); ConfigError if there are sets then.
std::shared_ptr<const config::RunPlan> plan_on(const config::RunConfig& asked, int64_t ranks,
                                               std::vector<int32_t> places, const std::string& cluster,
                                               const std::vector<std::string>& sets);
std::shared_ptr<const config::RunPlan> plan_on(const config::RunConfig& asked, int64_t ranks,
                                               std::vector<int32_t> places,
                                               const hardware::ClusterSpec& cluster);
// The machine of the plan's ranks: the described one, or this one, whose kernels are measured if no earlier process
// has done it.
hardware::Machine machine_of(const config::RunPlan& plan);
// The place of a rank on the pipeline axis.
int32_t place_of_rank(const config::RunConfig& asked, int64_t ranks, int64_t rank);
// All places, this one first.
std::vector<int32_t> places_from(const config::RunConfig& asked, int64_t ranks, int32_t first);
// A line about the device and its links.
std::string machine_text(const hardware::Machine& machine);
// Of all compiled stages, in their order.
std::vector<Programs> stages_of(const config::RunPlan& plan);

// One change that makes the programs fit.
struct Remedy {
  std::string set;  // "training.micro_batch_size=2"
  int64_t arena_bytes;
};

// Consecutive steps of one size.
struct ExplainedSteps {
  config::Ramps::Period period;
  size_t program = 0;
  double step_seconds = 0;
};

// Immutable; threads may share it.
class Explanation {
 public:
  // Of one rank; its place must be compiled, and for a pipeline's time all others. Measures the machine's kernels if no
  // earlier process has.
  Explanation(std::shared_ptr<const config::RunPlan> plan, int64_t rank);

  const config::RunPlan& plan() const { return *plan_; }
  const Programs& programs() const { return programs_; }
  MemoryPlan memory() const;
  const TimePlan& time() const { return time_; }
  std::string text(bool with_programs = false) const;
  nlohmann::ordered_json json() const;

 private:
  std::string summary() const;
  std::string remedies() const;
  std::string setting() const;
  std::string ramp() const;
  std::string choices() const;

  std::shared_ptr<const config::RunPlan> plan_;
  int64_t rank_ = 0;
  Programs programs_;
  bool fits_ = true;          // the programs fit memory.budget
  int32_t tight_place_ = -1;  // another place on the pipeline axis, whose programs exceed the budget
  hardware::Machine machine_;
  std::vector<ExplainedSteps> steps_;
  TimePlan time_;
  std::vector<Remedy> remedies_;  // if they do not fit
};

}  // namespace strata::library
