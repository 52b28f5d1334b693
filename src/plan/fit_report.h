// The fit of a scaling law to a user's runs as text, JSON and a page: `strata scale fit`.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "plan/fit.h"

namespace strata::planning {

struct NamedRun {
  std::string name;
  RunPoint point;
};

struct FitReport {
  std::vector<NamedRun> runs;
  std::string loss_name;  // which loss of the runs was used
  LawFit fit;
  std::optional<IsoFlopFit> isoflop;
  std::string no_isoflop;               // why there is none
  std::optional<EnvelopeFit> envelope;  // of training curves
  std::string no_envelope;              // why there is none; empty if there are no curves
  std::optional<Allocation> optimum;
  std::vector<std::string> notes;
};

// Fits approach 3, and approaches 2 and 1 if the runs share budgets and `curves` suffice. `flops`: a budget whose
// optimum to predict. DataError if the runs cannot determine a law.
FitReport report_fit(std::vector<NamedRun> runs, std::string loss_name, std::optional<double> flops,
                     std::span<const RunCurve> curves = {}, const FitOptions& options = {});

// Runs of a table with the columns params, tokens and loss, in any order, and optionally name; other columns
// are ignored. Counts may be written as "7B". `name`: of the file, for messages. DataError with line and
// column.
std::vector<NamedRun> parse_run_points(std::string_view text, const std::string& name);

std::string to_text(const FitReport& report);
// {"law": "chinchilla", "coefficients": {"E", "A", "B", "alpha", "beta", "params_exponent"}}, each with
// {"value", "low", "high"}, then "runs", "loss", "residual", "isoflop", "envelope", "optimum" and "notes".
nlohmann::ordered_json json_of(const FitReport& report);
// A page that needs no network: loss by size or tokens, the optimal size by compute with its interval, fitted
// against measured losses, coefficients and runs.
std::string fit_page(const FitReport& report);

}  // namespace strata::planning
