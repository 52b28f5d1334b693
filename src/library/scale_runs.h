// Runs and tables of runs as points of a scaling law: `strata scale fit RUN…`.
#pragma once

#include <string>
#include <vector>

#include "plan/fit_report.h"

namespace strata::library {

struct ScalePoints {
  std::vector<planning::NamedRun> runs;
  std::vector<planning::RunCurve> curves;  // training losses of the folders
  std::string loss_name;                   // which loss was used
  std::vector<std::string> notes;          // runs that did not finish, mixtures of experts
};

// Each of `inputs` is a run's folder, the name of one in runs/, or a CSV table (planning::parse_run_points).
// The loss is the last "eval/valid/loss" if every run has one; otherwise the mean training loss of the last
// 5 % of the steps, at most 100. Parameters are those that a token uses, from the final
// model's config.json, a checkpoint's, or the metrics. Changes nothing. ConfigError if there is no run,
// DataError if one has no steps or no parameter count.
ScalePoints read_scale_points(const std::vector<std::string>& inputs);

}  // namespace strata::library
