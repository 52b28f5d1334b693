// Schedules as JSON, as `strata explain RUN.toml --schedule --json` prints them and [parallel] schedule reads
// them from a file:
//   {"schedule": name, "stages": S, "microbatches": m, "ranks": [[["F", micro-batch, stage], …], …]}
// with "F", "I", "W", "B", and ["FB", mF, stageF, mB, stageB] for an overlapped pair. A stage lies on the
// rank that has its actions.
#pragma once

#include <string>
#include <string_view>

#include "parallel/schedule.h"

namespace strata::parallel {

// One line, without an end.
std::string to_json(const Schedule& schedule);

// A sound schedule (check.h). ConfigError, with `origin` in front, where the text is no JSON or not of this
// form (rank and action are named), or the schedule cannot run.
Schedule parse_schedule(std::string_view json, const std::string& origin);

}  // namespace strata::parallel
