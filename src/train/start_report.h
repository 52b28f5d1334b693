// What a run reports when it starts: events of the start or the resume, and the facts of the run's page.
#pragma once

#include <vector>

#include "train/reporter.h"
#include "train/run_inputs.h"
#include "train/run_position.h"

namespace strata::train {

// `changes`: of the configuration and the data, by this resume.
void report_start(Reporter& reporter, const RunInputs& inputs, const RunPosition& position,
                  const program::Executor& executor, const std::vector<config::Change>& changes);

}  // namespace strata::train
