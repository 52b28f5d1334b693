// Schedules as JSON, as `strata explain RUN.toml --schedule --json` prints them and [parallel] schedule reads
// them from a file:
//   {"schedule": name, "stages": S, "microbatches": m, "ranks": [[["F", micro-batch, stage], …], …]}
// with "F", "I", "W", "B", and ["FB", mF, stageF, mB, stageB] for an overlapped pair. A stage is on the rank
// that has its actions.
#pragma once

#include <string>
#include <string_view>

#include "parallel/schedule.h"

namespace strata::parallel {

// One line, without a line break.
std::string to_json(const Schedule& schedule);

// Returns a sound schedule (check.h). ConfigError, prefixed with `origin`, if the text is not JSON of this
// form (the message names rank and action) or the schedule cannot run.
Schedule parse_schedule(std::string_view json, const std::string& origin);

}  // namespace strata::parallel
