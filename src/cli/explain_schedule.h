// strata explain --schedule: who does what with which micro-batch, and when.
#pragma once

#include "hardware/device_spec.h"
#include "parallel/schedule.h"
#include "parallel/simulate.h"
#include "program/program.h"

namespace strata::cli {

// The script of a training program as a pipeline of one stage.
parallel::Schedule schedule_of(const program::Program& program);
// What its F, I (or B) and W should take, in milliseconds.
parallel::Costs expected_costs(const program::Program& program, const hardware::DeviceSpec& device);

}  // namespace strata::cli
