// strata plan: the layouts of a training run on a cluster or on this machine, ranked by formulas, the best of them
// confirmed by compiled programs.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "config/run_config.h"
#include "library/simulation.h"
#include "plan/hypothetical.h"
#include "plan/program_model.h"

namespace strata::library {

// At most one of gpus, budget and deadline.
struct LayoutRequest {
  std::string model;                   // a preset, a folder with config.json, a RUN.toml or a run's folder
  std::vector<std::string> sets = {};  // of the run, and of the cluster and its chip
  std::optional<double> tokens = {};   // of the run
  std::optional<int64_t> gpus = {};
  std::optional<double> budget = {};    // dollars
  std::optional<double> deadline = {};  // s
  std::string cluster = {};             // a name or a file; empty: this machine
  bool hypothetical = false;            // also what this version cannot run
};

// A layout as compiled.
struct CompiledLayout {
  double seconds = 0;  // of a step
  int64_t bytes = 0;   // of the fullest rank
  planning::ProgramTraffic sent = {};
  std::shared_ptr<const Simulation> simulation;
};

struct PlannedLayout {
  planning::RankedLayout formula;
  std::optional<CompiledLayout> compiled;
  config::RunConfig config;          // with this layout
  std::optional<double> measured{};  // s of a step that ran
  // As predicted.
  double seconds() const { return compiled ? compiled->seconds : formula.seconds; }
};

class LayoutSearch {
 public:
  // ConfigError if nothing fits (with the least that would), if settings contradict each other, for a name that is not
  // known (with the nearest one), and for a budget or deadline that no number of devices keeps.
  explicit LayoutSearch(const LayoutRequest& request);

  const std::vector<PlannedLayout>& layouts() const { return layouts_; }  // fastest first
  const planning::SearchResult& found() const { return found_; }
  // Runs the first `count` layouts, of this machine, as `run` does: it trains a configuration on `ranks` ranks for a
  // few steps and returns the seconds of one. Afterwards these come first, the fastest of them before the others.
  using Trial =
      std::function<double(const config::RunConfig& config, int64_t ranks, const std::string& layout)>;
  void try_layouts(size_t count, const Trial& run);
  // A configuration with the best layout, of which `strata explain` and `strata train` take it.
  std::string run_toml() const;
  std::string text() const;
  // {"layouts": [{"parallel", "training", "memory", "step_time_s", "step_time_low_s", "step_time_high_s",
  // "memory_bytes", "mfu", "cost", "binds", "measured_s", …}, …], "run_toml", "devices", "cannot_run", "sensitivity", …}; with hypotheses also "hypothetical": [{"what", "layout", "step_time_s",
  // "step_time_low_s", "step_time_high_s", "memory_bytes", "cost", "gain", …}]
  nlohmann::ordered_json json() const;
  // One offline page: the layouts, the best one's step (step_sections.h), costs, sensitivity, assumptions.
  std::string page() const;

 private:
  void read_model(const LayoutRequest& request);
  void read_machine(const LayoutRequest& request);
  void choose_devices(const LayoutRequest& request);
  planning::SearchResult search(int64_t devices, size_t keep);
  [[noreturn]] void nothing_fits(const planning::SearchResult& found);
  void confirm();
  CompiledLayout compile(const PlannedLayout& layout) const;
  config::RunConfig with_layout(const planning::Layout& layout) const;
  planning::FixedLayout fixed() const;
  double run_seconds(double step) const;
  std::optional<double> cost_of(double step, int64_t devices) const;
  nlohmann::ordered_json json_of(const PlannedLayout& layout) const;
  std::optional<double> cost_of(const planning::Hypothesis& one) const;
  double formula_best() const;  // s of the fastest layout by formulas
  std::string hypothesis_text(const planning::Hypothesis& one) const;
  std::string tried_text() const;

  config::RunConfig asked_;
  std::vector<std::string> sets_;
  std::string model_name_;
  double parameters_ = 0, tokens_ = 0;
  planning::Profiles profiles_;
  planning::SearchRequest job_;
  planning::Catalogue catalogue_;
  bool here_ = false;  // this machine
  int64_t hosts_of_ = 1;
  std::optional<planning::Price> price_;
  std::vector<std::string> assumptions_;
  planning::SearchResult found_;
  std::vector<PlannedLayout> layouts_;
  std::vector<planning::Discarded> rejected_;  // by the compiler
  std::vector<planning::Sensitivity> more_;
  std::vector<planning::Hypothesis> hypotheses_;
};

}  // namespace strata::library
