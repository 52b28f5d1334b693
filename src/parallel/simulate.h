// Simulates a step of a schedule: when each action runs, how long the step takes, and how many activations
// each rank holds.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "parallel/schedule.h"

namespace strata::parallel {

// Costs of one stage for one micro-batch; times in any unit. B takes input_grad + weight_grad.
struct StageCost {
  double forward = 1, input_grad = 1, weight_grad = 1;
  // Memory held from F until the end of B or W, in any unit.
  double activations = 1;
};

struct Costs {
  std::vector<StageCost> stages;  // by stage
  double message = 0;  // from the end of an action until a stage on another rank can read its output
  // Duration of FB relative to its F and B run in sequence; below 1 if overlapping them saves time.
  double pair = 1;
};

// Costs of a model that is split evenly. `rank` is the cost of a rank's share; its stages divide it equally.
Costs even_costs(const Schedule& schedule, const StageCost& rank = {});

struct RankTimes {
  std::vector<double> start, end;  // by action
  double busy = 0;
  double peak = 0;  // most activations held at the same time
};

struct Simulation {
  std::vector<RankTimes> ranks;
  double makespan = 0;  // from the first action to the end of the last
  double bubble(int32_t rank) const { return makespan - ranks[static_cast<size_t>(rank)].busy; }
  // The fraction of all ranks' time spent waiting.
  double bubble_share() const;
  double peak() const;  // of the rank that holds the most
};

// Every rank runs its actions in order. An action begins when the rank is free and its inputs have arrived: F
// needs F of the previous stage; I and B need their own F, and I or B of the next stage; W needs its I.
// Outputs of B and FB are available when the action ends. Messages do not delay each other. InternalError if
// the schedule is not sound (check.h) or the number of costs differs from its stages. Linear in the number of
// actions.
Simulation simulate(const Schedule& schedule, const Costs& costs);

// A lower bound on the duration of any order of these actions on these ranks: the time of a micro-batch
// through all stages and back, or a rank's earliest start plus its work plus the least that must follow.
double critical_path(const Schedule& schedule, const Costs& costs);

// The most micro-batches, counted per stage, that a rank holds at the same time: between F and I or B,
// between F and W or B, and between I and W, each from the start of the first action to the end of the
// second.
struct LiveCounts {
  int32_t forward_to_input_grad = 0, forward_to_weight_grad = 0, input_to_weight_grad = 0;
  bool operator==(const LiveCounts&) const = default;
};
std::vector<LiveCounts> live_counts(const Schedule& schedule);  // by rank

}  // namespace strata::parallel
