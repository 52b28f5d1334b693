// Reports the start of a run: events of the start or resume, and the facts on the run page.
#pragma once

#include <vector>

#include "train/reporter.h"
#include "train/run_inputs.h"
#include "train/run_position.h"

namespace strata::training {

// `changes`: those that this resume makes to the configuration and the data. `from_copies`: whether it starts
// from copies in memory.
void report_start(Reporter& reporter, const RunInputs& inputs, const RunPosition& position,
                  const program::Executor& executor, const std::vector<config::Change>& changes,
                  bool from_copies);

}  // namespace strata::training
