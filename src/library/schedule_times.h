// strata explain --schedule: the actions of each rank, with their micro-batches and times.
#pragma once

#include <vector>

#include "hardware/cluster_spec.h"
#include "library/explanation.h"
#include "parallel/schedule.h"
#include "parallel/simulate.h"

namespace strata::library {

// The schedule of the pipeline of a rank's programs; without a pipeline, that of a single stage.
parallel::Schedule schedule_of(const program::ProgramSet& set);
// Its actions in time, in milliseconds, as program::price_step has them. `places`: the programs of all places of the
// pipeline, or of the only one.
parallel::Simulation expected_times(const std::vector<Programs>& places, const hardware::Machine& machine);

}  // namespace strata::library
