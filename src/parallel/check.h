// Validates schedules before a run: a valid ("sound") one runs to its end.
#pragma once

#include <string>
#include <vector>

#include "parallel/schedule.h"

namespace strata::parallel {

// All errors of a schedule, each with its rank and action; empty if it is sound. Checks, in this order, and
// stops after the first that fails:
// - form: stages are on existing ranks, and every rank has actions
// - actions name existing stages and micro-batches, and are on the rank of their stage
// - completeness: F, and B or I and W, exactly once for each micro-batch and stage
// - order within a rank: F before I or B, I before W
// - deadlock: no cycle of waits, if sends do not block (messages.h)
std::vector<std::string> errors_of(const Schedule& schedule);

// Throws a ConfigError with the first errors. `origin` names the source of the schedule: "parallel.schedule".
void require_sound(const Schedule& schedule, const std::string& origin);

}  // namespace strata::parallel
