// strata explain --schedule: the actions of each rank, with their micro-batches and times.
#pragma once

#include "hardware/device_spec.h"
#include "parallel/schedule.h"
#include "parallel/simulate.h"
#include "program/program.h"

namespace strata::library {

// The schedule of the pipeline of a rank's programs; without a pipeline, that of a single stage.
parallel::Schedule schedule_of(const program::ProgramSet& set);
// Predicted milliseconds of F, I (or B) and W of a rank's stages in a training program. Fills them in for a
// pipeline's schedule.
void add_expected_costs(const program::ProgramSet& set, size_t index, const hardware::DeviceSpec& device,
                        parallel::Costs& costs);

}  // namespace strata::library
