// The metrics that a run measures, and those that checkpoint.best_metric may name.
#include <fmt/format.h>

#include <algorithm>

#include "base/suggest.h"
#include "config/run_config.h"

namespace strata::config {
namespace {

void add_text(const std::string& set, std::vector<std::string>& names) {
  names.push_back("eval/" + set + "/loss");
  names.push_back("eval/" + set + "/bits_per_byte");
}

}  // namespace

std::vector<std::string> metric_names(const RunConfig& config) {
  std::vector<std::string> names{"loss"};
  // If unset, the fraction depends on the kind of the data files.
  if (!config.data.valid.empty() || config.data.valid_fraction.value_or(1) > 0) add_text("valid", names);
  for (const EvalSet& set : config.eval.set) {
    if (set.task.empty()) {
      add_text(set.name, names);
    } else {
      names.push_back("eval/" + set.name + "/acc");
      names.push_back("eval/" + set.name + (set.task.starts_with("lambada") ? "/perplexity" : "/acc_norm"));
    }
  }
  return names;
}

std::string error_in_best_metric(const CheckpointTable& checkpoint, std::span<const std::string> measured) {
  const CheckpointTable usual;
  const std::string& best = checkpoint.best_metric;
  if (std::find(measured.begin(), measured.end(), best) != measured.end()) return "";
  if (best == usual.best_metric && checkpoint.keep_best <= usual.keep_best) return "";
  if (best == "grad_norm")
    return fmt::format(
        "found \"grad_norm\", which does not distinguish good checkpoints from bad ones; expected one of {}",
        fmt::join(measured, ", "));
  const auto near = nearest_name(best, measured);
  return fmt::format("found \"{}\", which this run does not measure; {}expected one of {}", best,
                     near ? "did you mean \"" + *near + "\"? " : "", fmt::join(measured, ", "));
}

}  // namespace strata::config
