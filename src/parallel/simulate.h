// A step of a schedule in time: when each action runs, how long the step takes, what is held meanwhile.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "parallel/schedule.h"

namespace strata::parallel {

// What one stage costs for one micro-batch, times in any unit. B takes input_grad + weight_grad.
struct StageCost {
  double forward = 1, input_grad = 1, weight_grad = 1;
  // What F leaves until the end of B or W, in any unit.
  double activations = 1;
};

struct Costs {
  std::vector<StageCost> stages;  // by stage
  double message = 0;             // from the end of an action to when a stage on another rank can read it
  // FB takes so much of what its F and its B take one after the other: below 1 where overlap gains.
  double pair = 1;
};

// Of a model cut evenly, in units of a rank's share of it: each of its stages costs an equal part of `rank`.
Costs even_costs(const Schedule& schedule, const StageCost& rank = {});

struct RankTimes {
  std::vector<double> start, end;  // by action
  double busy = 0;
  double peak = 0;  // most activations held at once
};

struct Simulation {
  std::vector<RankTimes> ranks;
  double makespan = 0;  // from the first action to the end of the last
  double bubble(int32_t rank) const { return makespan - ranks[static_cast<size_t>(rank)].busy; }
  // Of all ranks' time, the part in which they wait.
  double bubble_share() const;
  double peak() const;  // of the rank that holds most
};

// Every rank runs its actions in their order; one begins when the rank is free and what it needs is there. F
// needs F of the stage before; I and B need their own F, and I or B of the stage behind; W needs its I. What
// B or FB makes is there at its end. No message waits for another. InternalError where the schedule is not
// sound (check.h) or costs are not those of its stages. Takes time in proportion to the actions.
Simulation simulate(const Schedule& schedule, const Costs& costs);

// No order of these actions on these ranks takes less: the longest way of a micro-batch through all stages
// and back, or the work of a rank between the earliest that it can begin and the least that follows it.
double critical_path(const Schedule& schedule, const Costs& costs);

// Micro-batches, each of one of the rank's stages, that a rank holds at once at most: between F and I or B,
// between F and W or B, and between I and W, each from the start of the one to the end of the other.
struct LiveCounts {
  int32_t forward_to_input_grad = 0, forward_to_weight_grad = 0, input_to_weight_grad = 0;
  bool operator==(const LiveCounts&) const = default;
};
std::vector<LiveCounts> live_counts(const Schedule& schedule);  // by rank

}  // namespace strata::parallel
