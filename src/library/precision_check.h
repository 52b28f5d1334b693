// Measures the precision that the matmuls of a run's next step lose: strata check precision.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "evaluation/precision_loss.h"

namespace strata::library {

struct PrecisionCheckOptions {
  std::vector<std::string> inputs = {};  // as read_command_config() takes them; empty: model
  std::string model = {};                // as checkpoint::resolve_model() takes it
  std::vector<std::string> sets = {};
  std::function<void(double done)> progress = {};  // may throw
};

struct PrecisionCheck {
  std::string recipe = {};
  std::string weights = {};                            // their source, for people
  int64_t step = 0;                                    // that they would take next
  int64_t sequences = 0, sequence_length = 0;          // of the micro-batch
  std::vector<evaluation::ProductLoss> products = {};  // in the order in which they run
  double worst() const;                                // the least snr_db; kMostDecibels without any
  bool fits() const;
};

// The first micro-batch of the next step that training would make, on one rank whatever is in [parallel], since a layout
// changes no rounding. Weights and samples are those of the newest checkpoint of the run, or of the checkpoint that
// `model` names, else those at the start of the run. A model directory outside a run takes its data and all else from
// `sets`. Prepares data as training does; writes no run. ConfigError for a run without a recipe, and otherwise as
// make_plan().
PrecisionCheck check_precision(const PrecisionCheckOptions& options);

}  // namespace strata::library
