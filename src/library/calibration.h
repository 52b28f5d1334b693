// strata simulate --calibrate: the constants of a machine from steps of runs on it.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "hardware/cluster_spec.h"

namespace strata::library {

struct CalibratedRun {
  std::string name;  // its folder
  int64_t ranks = 1, threads = 1;
  int64_t steps = 0;             // that were measured
  int64_t traced = 0;            // of them with a trace
  double measured = 0;           // s, the median step
  double before = 0, after = 0;  // s, predicted
};

// What rates are multiplied by.
struct CalibratedRate {
  std::string name;  // an op with traces; else "compute", "memory", "exchange" or "launch"
  double factor = 1;
};

// Ops that runs have traces of (profile.steps) get the rates that the traces show. Then four factors are fitted to the
// median steps of all runs: on arithmetic, on bytes from memory, on exchanges between ranks, on launches. Each stays near 1 as far as
// the runs do not determine it: least squares of the logarithms of time, with a prior of 30 % (a normal distribution of
// the factor's logarithm). Immutable.
class Calibration {
 public:
  // `runs`: folders of runs that made steps on the machine that `cluster` describes; nullptr: this one, as doctor measured
  // it. ConfigError for a folder without a run, DataError for a run with fewer than 5 steps since its last start.
  Calibration(const std::vector<std::string>& runs, const hardware::ClusterSpec* cluster);

  const std::vector<CalibratedRun>& runs() const { return runs_; }
  const std::vector<CalibratedRate>& rates() const { return rates_; }
  // For --cluster: JSON as strata doctor writes it if the machine was measured, else a cluster file.
  std::string file() const;
  bool is_json() const { return !result_.measured.empty(); }
  std::string text() const;
  nlohmann::ordered_json json() const;

 private:
  std::vector<CalibratedRun> runs_;
  std::vector<CalibratedRate> rates_;
  hardware::ClusterSpec result_;
};

}  // namespace strata::library
