// strata explain --schedule: who does what with which micro-batch, and when.
#pragma once

#include "hardware/device_spec.h"
#include "parallel/schedule.h"
#include "parallel/simulate.h"
#include "program/program.h"

namespace strata::cli {

// The schedule of the pipeline that a rank's programs are of; else its script as one of one stage.
parallel::Schedule schedule_of(const program::ProgramSet& set);
// What F, I (or B) and W of a rank's stages should take, in milliseconds; fills in theirs of a pipeline.
void add_expected_costs(const program::ProgramSet& set, const hardware::DeviceSpec& device,
                        parallel::Costs& costs);

}  // namespace strata::cli
