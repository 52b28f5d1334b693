// Proof, before a run, that a schedule can be carried out.
#pragma once

#include <string>
#include <vector>

#include "parallel/schedule.h"

namespace strata::parallel {

// Every fault of a schedule, each with the rank and the action that it is about; empty: it runs to its end.
// In this order, and no further than the first that finds any:
// - form: stages lie on ranks that there are, no rank is without actions
// - actions are of the schedule and on the rank of their stage
// - completeness: for each micro-batch and stage F, and B (or I and W), exactly once each
// - order within a rank: F before I or B, I before W
// - deadlock: no rank waits for what can only come after it, with sends that nobody waits for (messages.h)
std::vector<std::string> errors_of(const Schedule& schedule);

// ConfigError that tells the first faults. `origin` says where the schedule comes from: "parallel.schedule".
void require_sound(const Schedule& schedule, const std::string& origin);

}  // namespace strata::parallel
